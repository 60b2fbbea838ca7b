-- What every script begins with. KEYS[1] is the lease, KEYS[2] its companion.
-- Numbers are doubles here: exact below 2^53, and written with %.0f (R1).

local TERM_MAX = 9007199254740991

-- How long the term of an election that nobody uses is kept. Then the clock keeps terms above it,
-- unless it is ahead of the clock (R1).
local UNUSED_MS = 30 * 24 * 3600 * 1000

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function text(number)
  return string.format('%.0f', number)
end

-- Whether one decimal number is not above another. As text: they may have 64 bits.
local function at_most(one, other)
  return #one < #other or (#one == #other and one <= other)
end

-- Who holds the lease, and what tenure noted about it. While there is a key, the notes count only
-- for the holder that they name: a foreign client takes and frees it without touching them (R5).
-- A key that vanished alone, deleted by hand or evicted, was never released: the candidate in the
-- notes holds the lease up to its noted end (R6). A key that ran out vanishes just after that end.
-- If an election was forgotten, its last term is in the key `kept`.
local function look(kept)
  local notes = redis.call('HMGET', KEYS[2],
    'holder', 'term', 'ttl', 'seq', 'since', 'asked', 'metadata', 'ends')
  local seen = {
    holder = redis.call('GET', KEYS[1]),
    noted = notes[1], term = notes[2], ttl = notes[3], seq = notes[4],
    since = notes[5], asked = notes[6], metadata = notes[7],
  }
  local ends = tonumber(notes[8] or nil)
  if not seen.holder and seen.noted and seen.term and ends and ends >= now then
    seen.holder = seen.noted
    -- No lease ends later than one that is renewed now. The clock was set back if this one does.
    local latest = now + (tonumber(seen.ttl or nil) or 0)
    seen.ends, seen.is_late = math.min(ends, latest), ends > latest
  end
  seen.ours = seen.holder and seen.holder == seen.noted and seen.term and true
  seen.ran_out = not seen.holder and seen.noted and seen.noted ~= '' and true
  if kept and not seen.term then
    local rest = redis.call('HMGET', kept, 'term', 'ttl', 'ran_out')
    seen.term, seen.ttl, seen.ran_out = rest[1], rest[2], rest[3] == '1'
  end
  return seen
end

-- Holds the lease for a ttl from now, and notes its end. Makes a key that vanished again. A full
-- server allows all of it, because the first command can't take memory.
local function hold(candidate, ttl)
  local ends = text(now + tonumber(ttl))
  if redis.call('PEXPIREAT', KEYS[1], ends) == 0 then
    redis.call('SET', KEYS[1], candidate)
    redis.call('PEXPIREAT', KEYS[1], ends)
  end
  redis.call('HSET', KEYS[2], 'ends', ends, 'ttl', ttl)
end

-- How long nothing new is granted, in ms, and the run id (R2). The marker tells since when all that
-- this very run of the server granted is known. A clock that was set back starts anew. The last
-- leader that the notes know may have had a longer ttl than the asker, and its like may have been
-- forgotten.
local function settling(marker, settle, seen, note)
  if settle == 'off' then
    return 0, ''
  end
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if not run then
    return redis.error_reply('TENURENORUN INFO has no run_id')
  end
  local known = redis.call('HMGET', marker, 'run', 'from')
  local from = tonumber(known[2] or nil)
  if known[1] ~= run or not from or from > now then
    from = now
    if note then
      redis.call('HSET', marker, 'run', run, 'from', text(from), 'by', 'seen')
    end
  end
  local span = math.max(tonumber(settle), tonumber(seen.ttl or nil) or 0)
  return math.max(0, from + span - now), run
end

local function granted(term, asked, expired)
  return {'granted', clock[1], clock[2], term, asked and '1' or '0', expired or ''}
end

-- The answer to a read or to a refused request: what stands there.
local function sight(kind, seen, left)
  local answer = {kind, clock[1], clock[2], seen.term or '', text(left or 0)}
  if seen.holder then
    local rest = seen.ours and {seen.term, seen.ttl, seen.since, seen.metadata or ''}
      or {'', '', '', ''}
    answer[6] = seen.holder
    answer[7] = text(seen.ends and seen.ends - now or redis.call('PTTL', KEYS[1]))
    for index = 1, 4 do
      answer[7 + index] = rest[index]
    end
  end
  return answer
end

-- Tells something on a channel: how many heard it, or the error.
local function tell(publish, channel, message)
  local told = redis.pcall(publish, channel, message)
  if type(told) == 'table' and publish == 'SPUBLISH'
    and string.find(told.err, 'Unknown Redis command', 1, true) then
    -- Before 7.0 there are no sharded channels. After any other error nobody listens on plain ones.
    publish = 'PUBLISH'
    told = redis.pcall(publish, channel, message)
  end
  if type(told) == 'table' and string.find(told.err, "can't run this command", 1, true) then
    told = {err = "NOPERM no permission to run the '" .. string.lower(publish) .. "' command"}
  end
  return told
end

-- Tells others to look again. A user that may not publish has made the change all the same, and
-- hears of it.
local function hint(publish, channel, election)
  local told = tell(publish, channel, election)
  local denied = type(told) == 'table' and (string.find(told.err, "can't ", 1, true)
    or string.find(told.err, ' permission', 1, true))
  return denied and '0' or '1'
end

