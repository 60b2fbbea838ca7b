-- The head of a channel, for the leader of this term.
-- KEYS: lease, companion, messages, what waits, what is dead.
-- ARGV: term, tries, the number of this request; the same number again if its answer was lost.
local seen = look()
if not seen.ours or seen.term ~= ARGV[1] then
  return {'stale'}
end
local messages, tries = KEYS[3], tonumber(ARGV[2])
while true do
  local id = redis.call('ZRANGE', KEYS[4], 0, 0)[1]
  if not id then
    return {'empty'}
  end
  local message = redis.call('HMGET', messages, id .. ':k', id .. ':p', id .. ':n', id .. ':a')
  local count, again = tonumber(message[3] or '0'), message[4] == ARGV[3]
  if again or count < tries then
    if not again then
      count = count + 1
      redis.call('HSET', messages, id .. ':n', text(count), id .. ':a', ARGV[3])
    end
    return {'message', id, message[1] or '', message[2] or '', text(count)}
  end
  redis.call('ZADD', KEYS[5], id, id)
  redis.call('ZREM', KEYS[4], id)
end
