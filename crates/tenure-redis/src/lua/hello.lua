-- The first call on each connection. KEYS: marker. ARGV: settle in ms or 'off'.
-- Notes that this run of the server is known, so that settling begins when the first client is
-- back and not when the next leader is wanted.
local function part(section, ...)
  local info = redis.pcall('INFO', section)
  if type(info) == 'table' then
    return info
  end
  local found = {}
  for index, field in ipairs({...}) do
    found[index] = string.match(info, field .. ':([^\r\n]*)') or ''
  end
  return found
end

local server = part('server', 'run_id', 'redis_mode')
if server.err and ARGV[1] ~= 'off' then
  -- Once more, so that the error says where.
  return redis.call('INFO', 'server')
end
local role = part('replication', 'role')
local memory = part('memory', 'maxmemory', 'maxmemory_policy')
local run = server[1] or ''
if ARGV[1] ~= 'off' and redis.call('HGET', KEYS[1], 'run') ~= run then
  local clock = redis.call('TIME')
  local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
  local noted = redis.pcall('HSET', KEYS[1], 'run', run, 'from', string.format('%.0f', now))
  -- A server that is full must still be renewed on. It grants nothing new, so it may settle later.
  if type(noted) == 'table' and not string.find(noted.err, 'OOM ', 1, true) then
    return noted
  end
end
return {server[2] or '', memory[1] or '', memory[2] or '', role[1] or ''}
