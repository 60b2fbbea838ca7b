-- What waits and what is dead, by channel. Changes nothing.
-- KEYS: lease, companion, messages, channels, how the keys of what waits and of what is dead begin.
local answer = {}
for _, channel in ipairs(redis.call('SMEMBERS', KEYS[4])) do
  local waiting = redis.call('ZCARD', KEYS[5] .. channel)
  local dead = redis.call('ZCARD', KEYS[6] .. channel)
  if waiting + dead > 0 then
    local first = redis.call('ZRANGE', KEYS[5] .. channel, 0, 0)[1]
    local since = first and redis.call('HGET', KEYS[3], first .. ':t')
    local age = since and text(math.max(0, now - tonumber(since))) or ''
    for _, word in ipairs({channel, text(waiting), text(dead), age}) do
      answer[#answer + 1] = word
    end
  end
end
return answer
