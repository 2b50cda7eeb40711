-- Loops that LuaJIT compiles, for as many seconds as the argument says.
local function burn(rounds)
  local value = 1
  for i = 1, rounds do value = (value * 6364 + i) % 1048573 end
  return value
end
local over = os.clock() + tonumber(arg[1])
while os.clock() < over do
  for _ = 1, 100 do burn(1000) end
end
