-- The first call on each connection.
-- KEYS: marker. ARGV: 'on' or 'off' for settling; the run that this client knew here before, or ''.
-- Notes that this run of the server is known, so that settling begins when the first client is
-- back and not when the next leader is wanted.
local function part(section, ...)
  local info = redis.pcall('INFO', section)
  if type(info) == 'table' then
    return info
  end
  local found = {}
  for index, field in ipairs({...}) do
    found[index] = string.match(info, '\n' .. field .. ':([^\r\n]*)') or ''
  end
  return found
end

local server = part('server', 'run_id', 'redis_mode', 'server_mode', 'uptime_in_seconds')
if server.err and ARGV[1] ~= 'off' then
  -- Once more, so that the error says where.
  return redis.call('INFO', 'server')
end
local role = part('replication', 'role')
local memory = part('memory', 'maxmemory', 'maxmemory_policy')
local run = server[1] or ''
-- Valkey calls it otherwise.
local mode = server[2] ~= '' and server[2] or server[3] or ''
-- One that knew this run has noted it before: if the marker is missing, it was lost.
local is_new = ARGV[2] == ''
local knew_another = not is_new and ARGV[2] ~= run

-- Commands after which leases may have been granted here, or brought here, and forgotten. All of
-- tenure's own are granted by scripts. RESETSTAT removes the traces of others; before 7.0 it looks
-- like any other CONFIG.
local SUSPECT = {
  'eval', 'evalsha', 'flushall', 'flushdb', 'swapdb', 'debug', 'restore', 'config',
  'config|resetstat', 'replicaof', 'slaveof', 'sync', 'psync', 'replconf', 'failover',
}

-- Whether this run of the server can have forgotten nothing: it has never granted a lease, and has
-- never copied one from elsewhere (ADR 32). In doubt it can.
local function is_innocent()
  if mode ~= 'standalone' or role[1] ~= 'master' or part('stats', 'evicted_keys')[1] ~= '0' then
    return false
  end
  local stats = redis.pcall('INFO', 'commandstats')
  stats = type(stats) == 'string' and string.lower(stats) or ''
  for _, command in ipairs(SUSPECT) do
    if string.find(stats, 'cmdstat_' .. command .. ':', 1, true) then
      return false
    end
  end
  -- We have just called this one. If it is not there, nothing is counted.
  return string.find(stats, 'cmdstat_info:', 1, true) ~= nil
end

local marker = ARGV[1] ~= 'off' and redis.call('HMGET', KEYS[1], 'run', 'from', 'by')
-- What was judged by the server alone counts less than somebody who knew another one here.
if marker and (marker[1] ~= run or (knew_another and marker[3] == 'start')) then
  local clock = redis.call('TIME')
  local from, by = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000), 'seen'
  if is_new and not marker[1] and not marker[2] and is_innocent() then
    -- Whatever it granted before is older than this run. Whole seconds: it is a second less.
    from, by = from - 1000 * math.max(0, (tonumber(server[4]) or 0) - 1), 'start'
  end
  local noted = redis.pcall('HSET', KEYS[1], 'run', run, 'from', string.format('%.0f', from),
    'by', by)
  -- A server that is full must still be renewed on. It grants nothing new, so it may settle later.
  if type(noted) == 'table' and not string.find(noted.err, 'OOM ', 1, true) then
    return noted
  end
end
return {mode, memory[1] or '', memory[2] or '', role[1] or '', run}
