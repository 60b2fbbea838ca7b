-- Asks for a job to run now, at the server's own instant or just after it; at no whole second: a
-- schedule has those.
-- KEYS: lease, companion, ticks, by time, open, jobs, schedules, steered, the ticks of the job.
-- ARGV: job, election, channel of hints, how to publish.
local at = now
while at % 1000 == 0 or redis.call('HEXISTS', KEYS[3], text(at) .. ' ' .. ARGV[1]) == 1 do
  at = at + 1
end
local field = text(at) .. ' ' .. ARGV[1]
redis.call('HSET', KEYS[3], field, 'requested|1||0||||||')
redis.call('ZADD', KEYS[4], text(at), field)
redis.call('ZADD', KEYS[9], text(at), field)
redis.call('ZADD', KEYS[5], text(at), field)
hint(ARGV[4], ARGV[3], ARGV[2])
return {text(at)}
