-- Our mailboxes: name -> options; '' -> the version of it all.
-- ARGV: what, then
--   read                     answers all of it
--   join, name, options      put it there if it is not
--   change, version, name, options, ...   if nobody changed anything meanwhile
local list, what = KEYS[1], ARGV[1]
if what == 'read' then return redis.call('HGETALL', list) end
if what == 'join' then
  if redis.call('HSETNX', list, ARGV[2], ARGV[3]) == 1 then redis.call('HINCRBY', list, '', 1) end
  return 1
end
if (redis.call('HGET', list, '') or '0') ~= ARGV[2] then return 0 end
for i = 3, #ARGV, 2 do redis.call('HSET', list, ARGV[i], ARGV[i + 1]) end
return redis.call('HINCRBY', list, '', 1)
