-- Tells what is in the cron ledger. Changes nothing.
-- KEYS: lease, companion, ticks, by time, open, jobs, perhaps the ticks of a job.
-- ARGV: what, how many. Answers field and value in turns.
local what, last = ARGV[1], text(tonumber(ARGV[2]) - 1)
if what == 'latest' then
  return redis.call('HGETALL', KEYS[6])
end
local fields
if what == 'open' then
  fields = redis.call('ZRANGE', KEYS[5], 0, last)
elseif what == 'history' then
  fields = redis.call('ZREVRANGE', KEYS[4], 0, last)
else
  fields = redis.call('ZREVRANGE', KEYS[7], 0, last)
end
local answer = {}
for _, field in ipairs(fields) do
  local value = redis.call('HGET', KEYS[3], field)
  if value then
    answer[#answer + 1] = field
    answer[#answer + 1] = value
  end
end
return answer
