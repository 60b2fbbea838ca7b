-- KEYS: lease, companion. ARGV: candidate, term, ttl in ms.
local seen = look()
if not seen.ours or seen.holder ~= ARGV[1] or seen.term ~= ARGV[2] then
  return sight('refused', seen)
end
hold(ARGV[1], ARGV[3])
return granted(seen.term, seen.asked == '1')
