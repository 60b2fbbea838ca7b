-- Tells what is known of one key, or of all, the latest claimed first. Changes nothing there.
-- KEYS: lease, companion, keys, by time of the claim.
-- ARGV: the key or nothing, how many. Answers key and value in turns.
local keys = {ARGV[1]}
if ARGV[1] == '' then
  keys = redis.call('ZREVRANGE', KEYS[4], 0, text(tonumber(ARGV[2]) - 1))
end
local answer = {}
for _, key in ipairs(keys) do
  local value = redis.call('HGET', KEYS[3], key)
  if value then
    answer[#answer + 1] = key
    answer[#answer + 1] = value
  end
end
return answer
