-- KEYS: entries, over
-- ARGV: now, limit
-- Answers how many keys were dropped because their time is over.
local entries, over = KEYS[1], KEYS[2]
local gone = call('ZRANGEBYSCORE', over, '-inf', text(now), 'LIMIT', 0, ARGV[2])
if #gone > 0 then
  call('ZREM', over, unpack(gone))
  call('HDEL', entries, unpack(gone))
end
return #gone
