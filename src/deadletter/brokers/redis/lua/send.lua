-- ARGV: now, token, the token before it on its lane, delay, with expiries ('1'),
--       then every message, each followed by its expiry if there are any
-- Answers 0 if the mailbox has to be made first, else 1.
-- A token seen before was a send whose answer got lost: its messages are here.
local known = call('HMGET', meta, 'alive', 'expire_after')
if not known[1] then return 0 end
if call('ZADD', sends, 'NX', text(now), ARGV[2]) == 0 then return 1 end
if ARGV[3] == '' then
  call('ZREMRANGEBYSCORE', sends, '-inf', text(now - 86400000000))
else
  call('ZREM', sends, ARGV[3])
end

local step = ARGV[5] == '1' and 2 or 1
local count = (#ARGV - 5) / step
local last = 100000000000000 + call('HINCRBY', meta, 'sent', count) - count
local due, given = now + ARGV[4], known[2] and now + known[2]
local packed, lined, expiring, stated = {}, {}, {}, {}
-- Of what waits it is noted for how long, see rows.lua; who sends it brings all keys.
local waits = ARGV[4] ~= '0' and '- 0' .. ARGV[4] .. ' 0 0 0 - '

local function flush()
  if #packed == 0 then return end
  call('HSET', bodies, unpack(packed))
  call('ZADD', ready, unpack(lined))
  if #expiring > 0 then call('ZADD', expiry, unpack(expiring)) end
  if #stated > 0 then call('HSET', states, unpack(stated)) end
  packed, lined, expiring, stated = {}, {}, {}, {}
end

local due_text = text(due)
for i = 6, #ARGV, step do
  last = last + 1
  local seq = text(last)
  local n = #packed
  packed[n + 1], packed[n + 2] = seq, ARGV[i]
  local expires = step == 2 and tonumber(ARGV[i + 1]) or given
  if expires then
    lined[n + 1], lined[n + 2] = text(math.min(due, expires)), seq
    expiring[#expiring + 1] = text(expires)
    expiring[#expiring + 1] = seq
  else
    lined[n + 1], lined[n + 2] = due_text, seq
  end
  if waits then
    stated[n + 1], stated[n + 2] = seq, waits .. lined[n + 1] .. ' ' .. (expires and text(expires) or '-')
  end
  if n + 2 == 2 * SLICE then flush() end
end
flush()
ring(bell)
return 1
