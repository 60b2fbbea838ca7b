-- KEYS: lease, companion, what is kept of an election that was forgotten, marker.
-- ARGV: settle in ms or 'off', and in a Cluster the marker. Changes nothing.
local seen = look(KEYS[3])
local left = settling(KEYS[4] or ARGV[2], ARGV[1], seen, false)
if type(left) == 'table' then
  return left
end
return sight('seen', seen, left)
