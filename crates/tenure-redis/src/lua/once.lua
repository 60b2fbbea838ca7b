-- A step about a key that has one run at a time, until a success is recorded for it.
-- KEYS: lease, companion, keys, by time of the claim.
-- ARGV: term, verb, key, run, tries, attempt, word, code.
--
-- A key is a field of the hash of keys; its value is state|code|term|attempt|run|claimed|ended.
-- No key is ever forgotten here: a success must stay known.
local term, verb, key = ARGV[1], ARGV[2], ARGV[3]
local seen = look()
if not (seen.ours and seen.term == term) then
  return {'stale', '0'}
end
local value = redis.call('HGET', KEYS[3], key)
local found
if value then
  found = {}
  for part in string.gmatch(value .. '|', '([^|]*)|') do
    found[#found + 1] = part
  end
end

local function keep(record)
  redis.call('HSET', KEYS[3], key, table.concat(record, '|'))
end

if verb == 'claim' then
  local number = 1
  if found then
    if found[1] == 'ok' then
      return {'already', found[4]}
    end
    if found[1] == 'running' and found[3] == term then
      return {found[5] == ARGV[4] and 'done' or 'running', found[4]}
    end
    if tonumber(found[4]) >= tonumber(ARGV[5]) then
      if found[1] == 'running' then
        -- It died, and nobody may try it again.
        found[1], found[7] = 'lost', text(now)
        keep(found)
      end
      return {'spent', found[4]}
    end
    number = tonumber(found[4]) + 1
  end
  keep({'running', '', term, text(number), ARGV[4], text(now), ''})
  redis.call('ZADD', KEYS[4], text(now), key)
  return {'done', text(number)}
end
if not found or found[3] ~= term or found[4] ~= ARGV[6] then
  return {'refused', '0'}
end
if found[1] == 'running' then
  found[1], found[2], found[7] = ARGV[7], ARGV[8], text(now)
  keep(found)
  return {'done', found[4]}
end
local same = found[1] == ARGV[7] and found[2] == ARGV[8]
return {same and 'done' or 'refused', found[4]}
