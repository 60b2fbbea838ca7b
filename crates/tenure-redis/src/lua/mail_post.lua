-- Keeps messages, each key once, all or none.
-- KEYS: lease, companion, messages, channels, then for each post: what waits in its channel, the
-- keys of its channel, the mark that its key leaves when it is done.
-- ARGV: count, then for each post: channel, payload, key; at the end the channel of the election,
-- and how to publish.
local messages, names = KEYS[3], KEYS[4]
local answer = {}
for index = 1, tonumber(ARGV[1]) do
  local arg, slot = index * 3 - 1, index * 3 + 2
  local channel, payload, key = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  local waits, keys, done = KEYS[slot], KEYS[slot + 1], KEYS[slot + 2]
  local known = redis.call('HGET', keys, key) or redis.call('GET', done)
  if known then
    answer[#answer + 1] = known
    answer[#answer + 1] = '0'
  else
    local id = text(redis.call('HINCRBY', messages, 'last', 1))
    redis.call('HSET', messages, id .. ':c', channel, id .. ':p', payload, id .. ':k', key,
      id .. ':n', '0', id .. ':t', text(now))
    redis.call('ZADD', waits, id, id)
    redis.call('HSET', keys, key, id)
    redis.call('SADD', names, channel)
    answer[#answer + 1] = id
    answer[#answer + 1] = '1'
  end
end
tell(ARGV[#ARGV], ARGV[#ARGV - 1], '')
return answer
