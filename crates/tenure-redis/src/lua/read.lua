-- KEYS: lease, companion, marker. ARGV: settle in ms or 'off'. Changes nothing.
local left = settling(KEYS[3], ARGV[1], false)
if type(left) == 'table' then
  return left
end
return sight('seen', look(), left)
