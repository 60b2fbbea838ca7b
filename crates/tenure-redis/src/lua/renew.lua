-- KEYS: lease, companion. ARGV: candidate, term, ttl in ms.
local seen = look()
if not seen.ours or seen.holder ~= ARGV[1] or seen.term ~= ARGV[2] then
  return sight('refused', seen)
end
-- A full server allows this.
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if seen.ttl ~= ARGV[3] then
  redis.call('HSET', KEYS[2], 'ttl', ARGV[3])
end
return granted(seen.term, seen.asked == '1')
