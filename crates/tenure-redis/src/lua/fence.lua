-- Runs one write if, and only if, the term still leads.
-- KEYS: lease, companion, then every key that the write touches. ARGV: term, then the write.
local holder = redis.call('GET', KEYS[1])
local noted = redis.call('HMGET', KEYS[2], 'holder', 'term', 'ends')
if not holder and noted[3] then
  -- A key that was deleted or evicted: the lease counts up to its noted end.
  local clock = redis.call('TIME')
  if clock[1] * 1000 + math.floor(clock[2] / 1000) <= tonumber(noted[3]) then
    holder = noted[1]
  end
end
if not holder or holder ~= noted[1] or noted[2] ~= ARGV[1] then
  return redis.error_reply('TENURESTALE ' .. (noted[2] or '0'))
end
return redis.call(unpack(ARGV, 2))
