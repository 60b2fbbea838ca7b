-- KEYS: lease, companion, the release of this candidate.
-- ARGV: candidate, term or '', seq, memory in ms, election, channel of hints, how to publish.
local seen = look()
local named = ARGV[2] ~= ''
local noted = seen.noted == ARGV[1] and seen.term and true
local done = noted and ((named and seen.term == ARGV[2])
  or (not named and at_most(seen.seq, ARGV[3])))
local vacates = done and seen.ours
if vacates then
  -- First, and allowed on a full server. The term stays.
  redis.call('DEL', KEYS[1])
  redis.call('HDEL', KEYS[2], 'holder', 'ends')
  -- An election that nobody uses is forgotten one day.
  if tonumber(seen.term) <= now then
    redis.call('PEXPIREAT', KEYS[2], text(now + UNUSED_MS))
  end
elseif done and seen.holder then
  -- A foreign client took the key when it had vanished. Its own release frees the lease at once.
  redis.call('HDEL', KEYS[2], 'ends')
end
-- Acquires up to this one are refused when they arrive late (C2); a late release lowers nothing.
local before = redis.call('GET', KEYS[3])
local last = ARGV[3]
if before and at_most(last, before) then
  last = before
end
redis.call('SET', KEYS[3], last, 'PX', ARGV[4])
if not vacates then
  return sight('refused', seen)
end
local answer = granted(seen.term)
answer[7] = hint(ARGV[7], ARGV[6], ARGV[5])
return answer
