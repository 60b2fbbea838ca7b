-- The steps of one term in the cron ledger: all of them under its lease, or all of them stale.
-- KEYS: lease, companion, ticks, by time, open, jobs, schedules, steered, then for each step the
-- ticks of its job.
-- ARGV: term, then for each step: verb, job, instant, attempt, word, code, through, count.
--
-- A tick is the field `instant job` of the hash of ticks; its value is
-- state|manual|term|attempt|code|through|count|claimed|started|ended. Of a job that somebody
-- steered, the hash has when it was paused and from when on it counts anew: paused|anew.
local term = ARGV[1]
local seen = look()
local holds = seen.ours and seen.term == term
local stamp = text(now)

local function split(value)
  local parts = {}
  for part in string.gmatch(value .. '|', '([^|]*)|') do
    parts[#parts + 1] = part
  end
  return parts
end

local function is_open(state)
  return state == 'requested' or state == 'claimed' or state == 'started' or state == 'retrying'
end

local function is_paused(job)
  local steered = redis.call('HGET', KEYS[8], job)
  return steered and string.sub(steered, 1, 1) ~= '|'
end

local function keep(field, at, of_job, tick)
  redis.call('HSET', KEYS[3], field, table.concat(tick, '|'))
  redis.call('ZADD', KEYS[4], at, field)
  redis.call('ZADD', of_job, at, field)
  if is_open(tick[1]) then
    redis.call('ZADD', KEYS[5], at, field)
  else
    redis.call('ZREM', KEYS[5], field)
  end
end

local function note(job, at)
  local before = redis.call('HGET', KEYS[6], job)
  if not before or tonumber(before) < tonumber(at) then
    redis.call('HSET', KEYS[6], job, at)
  end
end

local function trim(of_job, most)
  local excess = redis.call('ZCARD', of_job) - tonumber(most)
  if excess <= 0 then
    return
  end
  for _, field in ipairs(redis.call('ZRANGE', of_job, 0, excess - 1)) do
    if not redis.call('ZSCORE', KEYS[5], field) then
      redis.call('HDEL', KEYS[3], field)
      redis.call('ZREM', KEYS[4], field)
      redis.call('ZREM', of_job, field)
    end
  end
end

local function step(verb, job, at, attempt, word, code, through, count, of_job)
  if verb == 'trim' then
    trim(of_job, count)
    return 'done 0'
  end
  if verb == 'follow' then
    note(job, at)
    redis.call('HSET', KEYS[7], job, word)
    return 'done 0'
  end
  local field = at .. ' ' .. job
  local value = redis.call('HGET', KEYS[3], field)
  local tick = value and split(value)
  local ours = tick and tick[3] == term
  local runs = tick and (tick[1] == 'claimed' or tick[1] == 'started')
  if verb == 'claim' then
    local number
    if not tick or tick[1] == 'requested' then
      number = '1'
    elseif tick[1] == 'claimed' and ours then
      return 'done ' .. tick[4]
    elseif runs and not ours and word == 'again' then
      number = text(tonumber(tick[4]) + 1)
    elseif tick[1] == 'retrying' then
      number = text(tonumber(tick[4]) + 1)
    else
      return 'refused'
    end
    local manual = tick and tick[2] or '0'
    if manual == '0' and is_paused(job) then
      return 'paused'
    end
    keep(field, at, of_job, {'claimed', manual, term, number, '', '', '', stamp, '', ''})
    if manual == '0' then
      note(job, at)
    end
    return 'done ' .. number
  end
  if verb == 'skip' then
    if tick then
      return tick[1] == 'skipped' and 'done 0' or 'refused'
    end
    keep(field, at, of_job, {'skipped', '0', term, '0', '', through, count, '', '', stamp})
    note(job, tonumber(through) > tonumber(at) and through or at)
    return 'done 0'
  end
  if not tick then
    return 'refused'
  end
  local mine = runs and ours and tick[4] == attempt
  if verb == 'start' and mine then
    tick[1], tick[9] = 'started', stamp
  elseif verb == 'end' and ours and tick[4] == attempt and tick[1] == word then
    return 'done ' .. attempt
  elseif verb == 'end' and mine then
    tick[1], tick[5], tick[10] = word, code, stamp
  elseif verb == 'retry' and ours and tick[4] == attempt and tick[1] == 'retrying' then
    return 'done ' .. attempt
  elseif verb == 'retry' and mine then
    tick[1], tick[5], tick[10] = 'retrying', code, stamp
  elseif verb == 'confirm' and tick[1] == 'ok' and tick[4] == attempt then
    return 'done ' .. attempt
  elseif verb == 'abandon' and tick[1] == 'abandoned' then
    return 'done ' .. tick[4]
  elseif verb == 'abandon' and (tick[1] == 'requested' or tick[1] == 'retrying'
    or (runs and not ours)) then
    tick[1], tick[10] = 'abandoned', stamp
  else
    return 'refused'
  end
  keep(field, at, of_job, tick)
  return 'done ' .. tick[4]
end

local answer = {}
for index = 1, (#ARGV - 1) / 8 do
  if holds then
    local from = 2 + (index - 1) * 8
    answer[index] = step(ARGV[from], ARGV[from + 1], ARGV[from + 2], ARGV[from + 3],
      ARGV[from + 4], ARGV[from + 5], ARGV[from + 6], ARGV[from + 7], KEYS[8 + index])
  else
    answer[index] = 'stale'
  end
end
return answer
