/**
 * The scripts of the Redis drop-in. KEYS: the lease, its notes, what this incarnation has released.
 *
 * The notes are those of tenure's own store, with the incarnation added: both take one another for
 * neighbours that have a term. A key that vanished alone is not vacant before its noted end (R6);
 * terms are at least the server's time (R1); an acquire that is older than a release is refused (C2).
 */
const LOOK = `
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local function text(number) return string.format('%.0f', number) end
local holder = redis.call('GET', KEYS[1])
local noted = redis.call('HMGET', KEYS[2], 'holder', 'incarnation', 'term', 'ends', 'ttl')
local ends = tonumber(noted[4] or nil)
local left
if holder then
  left = redis.call('PTTL', KEYS[1])
elseif noted[1] and noted[3] and ends and ends >= now then
  holder = noted[1]
  left = math.min(ends - now, tonumber(noted[5] or nil) or 0)
end
local mine = holder == ARGV[1] and noted[1] == ARGV[1] and noted[2] == ARGV[2] and noted[3]
local function hold(ttl)
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ttl)
  redis.call('HSET', KEYS[2], 'ends', text(now + tonumber(ttl)), 'ttl', ttl)
end
`;

/** ARGV: id, incarnation, ttl, seq, above. */
export const ACQUIRE = `${LOOK}
local released = redis.call('GET', KEYS[3])
if (holder and not mine) or (released and tonumber(ARGV[4]) <= tonumber(released)) then
  return {0, left or -1}
end
local term = noted[3]
if not mine or tonumber(term) <= tonumber(ARGV[5]) then
  term = text(math.max((tonumber(term or nil) or 0) + 1, now, tonumber(ARGV[5]) + 1))
  redis.call('HSET', KEYS[2], 'holder', ARGV[1], 'incarnation', ARGV[2], 'term', term,
    'seq', ARGV[4], 'since', text(now), 'asked', '0', 'run', '', 'metadata', '')
  redis.call('PERSIST', KEYS[2])
end
hold(ARGV[3])
return {1, term}
`;

/** ARGV: id, incarnation, term, ttl. */
export const RENEW = `${LOOK}
if not mine or noted[3] ~= ARGV[3] then return {0, left or -1} end
hold(ARGV[4])
return {1, noted[3]}
`;

/** ARGV: id, incarnation, term or 0, seq. */
export const RELEASE = `${LOOK}
redis.call('SET', KEYS[3], ARGV[4], 'PX', 600000)
if not mine or (ARGV[3] ~= '0' and noted[3] ~= ARGV[3]) then return {0, left or -1} end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], 'holder', 'incarnation', 'ends')
redis.call('PEXPIRE', KEYS[2], 2592000000)
return {1, noted[3]}
`;

// The old protocol alone, for clients that may not touch the notes.
export const PLAIN_ACQUIRE = `
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
`;
export const PLAIN_RENEW = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
`;
export const PLAIN_RELEASE = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
`;
