-- KEYS: lease, companion. ARGV: term or '', election, channel of hints, how to publish.
local seen = look()
if not seen.ours or (ARGV[1] ~= '' and seen.term ~= ARGV[1]) then
  return sight('refused', seen)
end
redis.call('HSET', KEYS[2], 'asked', '1')
local answer = granted(seen.term)
answer[7] = hint(ARGV[4], ARGV[3], ARGV[2])
return answer
