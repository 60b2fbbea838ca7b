-- The dead letters, oldest first. Changes nothing.
-- KEYS: lease, companion, messages, channels, how the keys of what is dead begin.
-- ARGV: the channel or '', how many at most.
local names = ARGV[1] ~= '' and {ARGV[1]} or redis.call('SMEMBERS', KEYS[4])
local most = tonumber(ARGV[2])
local ids = {}
for _, channel in ipairs(names) do
  for _, id in ipairs(redis.call('ZRANGE', KEYS[5] .. channel, 0, most - 1)) do
    ids[#ids + 1] = tonumber(id)
  end
end
table.sort(ids)
local answer = {}
for index = 1, math.min(#ids, most) do
  local id = text(ids[index])
  local letter = redis.call('HMGET', KEYS[3], id .. ':c', id .. ':k', id .. ':p', id .. ':n')
  answer[#answer + 1] = id
  for part = 1, 4 do
    answer[#answer + 1] = letter[part] or ''
  end
end
return answer
