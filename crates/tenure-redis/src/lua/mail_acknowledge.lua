-- Takes a message off its channel, for the leader of this term.
-- KEYS: lease, companion, messages, what waits, the keys, how the marks of done keys begin.
-- ARGV: term, number of the message, how long a key is remembered in ms.
local seen = look()
if not seen.ours or seen.term ~= ARGV[1] then
  return {'stale'}
end
local messages, id = KEYS[3], ARGV[2]
if redis.call('ZREM', KEYS[4], id) == 0 then
  return {'gone'}
end
local key = redis.call('HGET', messages, id .. ':k')
if key then
  redis.call('SET', KEYS[6] .. key, id, 'PX', ARGV[3])
  redis.call('HDEL', KEYS[5], key)
end
redis.call('HDEL', messages, id .. ':c', id .. ':p', id .. ':k', id .. ':n', id .. ':t',
  id .. ':a')
return {'done'}
