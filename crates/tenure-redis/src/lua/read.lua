-- KEYS: lease, companion, marker. ARGV: settle in ms or 'off', and in a Cluster the marker.
-- Changes nothing.
local seen = look()
local left = settling(KEYS[3] or ARGV[2], ARGV[1], seen, false)
if type(left) == 'table' then
  return left
end
return sight('seen', seen, left)
