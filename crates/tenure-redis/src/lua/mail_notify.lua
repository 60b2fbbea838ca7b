-- Tells whoever listens in this election.
-- KEYS: lease, companion. ARGV: election, message, channel of hints, how to publish.
local channel, publish = ARGV[3] .. ':mail:' .. ARGV[1], ARGV[4]
local told = redis.pcall(publish, channel, ARGV[2])
if type(told) ~= 'number' and publish == 'SPUBLISH' then
  -- Before 7.0 there are no sharded channels.
  told = redis.pcall('PUBLISH', channel, ARGV[2])
end
return told
