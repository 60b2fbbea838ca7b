-- Forgets an election that nobody leads: its notes and its messages go, its last term stays.
-- KEYS: lease, companion, what is kept of it, messages, channels, how the keys of what waits, of
-- what is dead, and of the keys begin.
local seen = look()
if seen.holder then
  return {'led'}
end
if seen.term then
  redis.call('HSET', KEYS[3], 'term', seen.term, 'ttl', seen.ttl or '',
    'ran_out', seen.ran_out and '1' or '0')
  if tonumber(seen.term) <= now then
    redis.call('PEXPIREAT', KEYS[3], text(now + UNUSED_MS))
  end
end
redis.call('DEL', KEYS[2])
for _, channel in ipairs(redis.call('SMEMBERS', KEYS[5])) do
  redis.call('DEL', KEYS[6] .. channel, KEYS[7] .. channel, KEYS[8] .. channel)
end
redis.call('DEL', KEYS[4], KEYS[5])
return {seen.term and 'forgotten' or 'unknown'}
