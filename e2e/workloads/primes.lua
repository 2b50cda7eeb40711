-- Usage: lua primes.lua SECONDS
local function is_prime(n, d) return d * d > n or (n % d ~= 0 and is_prime(n, d + 1)) end
local function count(limit)
  local primes = {}
  for n = 2, limit do if is_prime(n, 2) then primes[#primes + 1] = tostring(n) end end
  return table.concat(primes, ",")
end
local deadline = os.clock() + tonumber(arg[1])
while os.clock() < deadline do count(3000) end
