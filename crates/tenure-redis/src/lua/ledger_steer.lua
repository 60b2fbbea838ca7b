-- Pauses or resumes a job, or has it count from now on; tells whether it is known.
-- KEYS: lease, companion, ticks, by time, open, jobs, schedules, steered, the ticks of the job.
-- ARGV: job, verb, election, by how much only a clock that was ahead is, channel of hints, how to
-- publish.
local job, verb, at, ahead = ARGV[1], ARGV[2], text(now), now + tonumber(ARGV[4])
local latest = redis.call('HGET', KEYS[6], job)
if not latest then
  return {'0'}
end
local paused, anew = string.match(redis.call('HGET', KEYS[8], job) or '|', '^(.*)|(.*)$')
if verb == 'pause' then
  paused = paused == '' and at or paused
elseif verb == 'resume' then
  if paused ~= '' and tonumber(latest) < now then
    redis.call('HSET', KEYS[6], job, at)
  end
  paused = ''
elseif tonumber(latest) > ahead then
  anew = at
  redis.call('HSET', KEYS[6], job, at)
  -- What a clock that was ahead has left behind.
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[9], '(' .. text(ahead), '+inf')) do
    if not redis.call('ZSCORE', KEYS[5], field) then
      redis.call('HDEL', KEYS[3], field)
      redis.call('ZREM', KEYS[4], field)
      redis.call('ZREM', KEYS[9], field)
    end
  end
end
redis.call('HSET', KEYS[8], job, paused .. '|' .. anew)
hint(ARGV[6], ARGV[5], ARGV[3])
return {'1'}
