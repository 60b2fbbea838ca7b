-- The head of a channel, for the leader of this term.
-- KEYS: lease, companion, messages, what waits, what is dead. ARGV: term, tries.
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
  if tonumber(redis.call('HGET', messages, id .. ':n') or '0') < tries then
    local count = redis.call('HINCRBY', messages, id .. ':n', 1)
    local message = redis.call('HMGET', messages, id .. ':k', id .. ':p')
    return {'message', id, message[1] or '', message[2] or '', text(count)}
  end
  redis.call('ZADD', KEYS[5], id, id)
  redis.call('ZREM', KEYS[4], id)
end
