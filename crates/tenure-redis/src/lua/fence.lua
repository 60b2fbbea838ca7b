-- Runs one write if, and only if, the term still leads.
-- KEYS: lease, companion, then every key that the write touches. ARGV: term, then the write.
local holder = redis.call('GET', KEYS[1])
local noted = redis.call('HMGET', KEYS[2], 'holder', 'term')
if not holder or holder ~= noted[1] or noted[2] ~= ARGV[1] then
  return redis.error_reply('TENURESTALE ' .. (noted[2] or '0'))
end
return redis.call(unpack(ARGV, 2))
