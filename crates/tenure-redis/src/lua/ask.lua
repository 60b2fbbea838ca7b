-- KEYS: lease, companion. ARGV: term or '', channel of hints, election.
local seen = look()
if not seen.ours or (ARGV[1] ~= '' and seen.term ~= ARGV[1]) then
  return sight('refused', seen)
end
redis.call('HSET', KEYS[2], 'asked', '1')
local answer = granted(seen.term)
answer[7] = hint(ARGV[2], ARGV[3]) and '1' or '0'
return answer
