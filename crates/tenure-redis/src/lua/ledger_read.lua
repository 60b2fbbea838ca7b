-- Tells what is in the cron ledger. Changes nothing.
-- KEYS: lease, companion, ticks, by time, open, jobs, schedules, steered, perhaps the ticks of a
-- job.
-- ARGV: what, how many, after which instant, after which job of that instant.
-- Answers field and value in turns; of jobs the name, the latest instant, the schedule, and when it
-- was paused and from when on it counts anew.
local what, most = ARGV[1], tonumber(ARGV[2])
local last = text(most - 1)
local answer = {}
if what == 'latest' then
  local jobs = redis.call('HGETALL', KEYS[6])
  for index = 1, #jobs, 2 do
    answer[#answer + 1] = jobs[index]
    answer[#answer + 1] = jobs[index + 1]
    answer[#answer + 1] = redis.call('HGET', KEYS[7], jobs[index]) or ''
    answer[#answer + 1] = redis.call('HGET', KEYS[8], jobs[index]) or '|'
  end
  return answer
end
local fields
if what == 'open' and ARGV[3] ~= '' then
  -- What is left of that instant, then what comes after it.
  local after = ARGV[3] .. ' ' .. ARGV[4]
  fields = {}
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], ARGV[3], ARGV[3])) do
    if field > after and #fields < most then
      fields[#fields + 1] = field
    end
  end
  local rest = text(most - #fields)
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '(' .. ARGV[3], '+inf',
    'LIMIT', '0', rest)) do
    fields[#fields + 1] = field
  end
elseif what == 'open' then
  fields = redis.call('ZRANGE', KEYS[5], 0, last)
elseif what == 'history' then
  fields = redis.call('ZREVRANGE', KEYS[4], 0, last)
else
  fields = redis.call('ZREVRANGE', KEYS[9], 0, last)
end
for _, field in ipairs(fields) do
  local value = redis.call('HGET', KEYS[3], field)
  if value then
    answer[#answer + 1] = field
    answer[#answer + 1] = value
  end
end
return answer
