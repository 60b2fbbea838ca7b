-- Puts dead letters back at the end of their channels, or removes them for good.
-- KEYS: lease, companion, messages, how the keys of what waits, of what is dead, and of the keys
-- begin. ARGV: 'replay' or 'discard', the numbers; channel of the election, how to publish.
local messages = KEYS[3]
local count = 0
for index = 2, #ARGV - 2 do
  local id = ARGV[index]
  local letter = redis.call('HMGET', messages, id .. ':c', id .. ':k', id .. ':p', id .. ':t')
  local channel, key = letter[1], letter[2]
  if channel and redis.call('ZREM', KEYS[5] .. channel, id) == 1 then
    count = count + 1
    redis.call('HDEL', messages, id .. ':c', id .. ':p', id .. ':k', id .. ':n', id .. ':t',
      id .. ':a')
    if ARGV[1] == 'replay' then
      local new = text(redis.call('HINCRBY', messages, 'last', 1))
      redis.call('HSET', messages, new .. ':c', channel, new .. ':p', letter[3],
        new .. ':k', key, new .. ':n', '0', new .. ':t', letter[4])
      redis.call('ZADD', KEYS[4] .. channel, new, new)
      redis.call('HSET', KEYS[6] .. channel, key, new)
    else
      redis.call('HDEL', KEYS[6] .. channel, key)
    end
  end
end
if ARGV[1] == 'replay' then
  tell(ARGV[#ARGV], ARGV[#ARGV - 1], '')
end
return {text(count)}
