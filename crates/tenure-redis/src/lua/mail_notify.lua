-- Tells those who listen in this election.
-- KEYS: lease, companion. ARGV: message, channel of the election, how to publish.
local told = tell(ARGV[3], ARGV[2], ARGV[1])
return type(told) == 'table' and told or {}
