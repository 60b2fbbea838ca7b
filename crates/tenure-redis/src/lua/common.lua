-- What every script begins with. KEYS[1] is the lease, KEYS[2] its companion.
-- Numbers are doubles here: exact below 2^53, and written with %.0f (R1).

local TERM_MAX = 9007199254740991

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function text(number)
  return string.format('%.0f', number)
end

-- Whether one decimal number is not above another. As text: they may have 64 bits.
local function at_most(one, other)
  return #one < #other or (#one == #other and one <= other)
end

-- Who holds the lease, and what tenure noted about it. The notes count only for the holder that
-- they name: a foreign client takes and frees the lease without touching them (R5).
local function look()
  local notes = redis.call('HMGET', KEYS[2],
    'holder', 'term', 'ttl', 'seq', 'since', 'asked', 'metadata')
  local seen = {
    holder = redis.call('GET', KEYS[1]),
    noted = notes[1], term = notes[2], ttl = notes[3], seq = notes[4],
    since = notes[5], asked = notes[6], metadata = notes[7],
  }
  seen.ours = seen.holder and seen.holder == seen.noted and seen.term and true
  return seen
end

-- How long nothing new is granted, in ms, and the run id (R2). The marker tells since when this
-- server, in this very run, has been known. A clock that was set back starts anew. The last leader
-- that the notes know may have had a longer ttl than whoever asks, and its like may have been
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
      redis.call('HSET', marker, 'run', run, 'from', text(from))
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
    answer[7] = text(redis.call('PTTL', KEYS[1]))
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

-- Tells others to look again. Whoever may not has made the change all the same, and hears of it.
local function hint(publish, channel, election)
  local told = tell(publish, channel, election)
  local denied = type(told) == 'table' and (string.find(told.err, "can't ", 1, true)
    or string.find(told.err, ' permission', 1, true))
  return denied and '0' or '1'
end

