-- Time is the server's, in microseconds, so that no worker's clock can steal a lease.
-- A caller who brings his own in ARGV[1] is a test.
local call = redis.call
local function text(number) return string.format('%.0f', number) end
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
