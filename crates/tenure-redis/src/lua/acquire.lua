-- KEYS: lease, companion, the release of this candidate, what is kept of an election that was
-- forgotten, marker.
-- ARGV: candidate, seq, above or '', floor or '', ttl in ms, metadata or '', settle in ms or 'off',
-- and in a Cluster the marker, which is in another slot of this server.
local candidate, seq, ttl, metadata = ARGV[1], ARGV[2], ARGV[5], ARGV[6]
local above, floor = tonumber(ARGV[3]) or 0, tonumber(ARGV[4]) or 0

local seen = look(KEYS[4])
local released = redis.call('GET', KEYS[3])
if seen.is_late then
  -- Nobody waits for longer than a ttl. A server that is full can't note that, and says so later.
  redis.pcall('HSET', KEYS[2], 'ends', text(seen.ends))
end
if (seen.holder and seen.holder ~= candidate) or (released and at_most(seq, released)) then
  return sight('refused', seen)
end

-- Not even the own term is granted again before the server has settled: what it remembers may be
-- older than a reign that it forgot.
local left, run = settling(KEYS[5] or ARGV[8], ARGV[7], seen, true)
if type(left) == 'table' then
  return left
end
if left > 0 then
  return sight('refused', seen, left)
end

if seen.ours and tonumber(seen.term) > above then
  -- The reply to an acquire was lost: the same term again (C1). So is a replay of this script.
  hold(candidate, ttl)
  if not at_most(seq, seen.seq) then
    redis.call('HSET', KEYS[2], 'seq', seq)
  end
  return granted(seen.term, seen.asked == '1')
end

-- The stored term may be stale or gone; the clock keeps the next one above it all the same (R1).
local term = math.max((tonumber(seen.term or nil) or 0) + 1, now, floor, above + 1)
if term > TERM_MAX then
  return redis.error_reply('TENURERANGE the election has used up its terms')
end
term = text(term)
-- What a full server refuses comes first, so that nothing is half done.
redis.call('HSET', KEYS[2], 'holder', candidate, 'term', term, 'seq', seq,
  'since', text(now), 'asked', '0', 'run', run, 'metadata', metadata)
-- While somebody leads, `volatile-*` must not evict the notes (R6).
redis.call('PERSIST', KEYS[2])
hold(candidate, ttl)
redis.call('DEL', KEYS[4])
return granted(term, false, seen.ran_out and seen.ttl or '')
