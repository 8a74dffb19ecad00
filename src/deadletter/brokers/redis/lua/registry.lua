-- The list of mailboxes: name -> options; '' -> its version. Options that begin with
-- a '-' are those of a mailbox that is being deleted.
-- ARGV: what, then
--   read                     answers all of it
--   join, name, options      put it there if it is not; answers version and options
--   change, version, name, options, ...   if nobody changed anything meanwhile
--   leave, name              if it is still being deleted
local list, what = KEYS[1], ARGV[1]
if what == 'read' then return redis.call('HGETALL', list) end
if what == 'join' then
  local there = redis.call('HGET', list, ARGV[2])
  if not there or string.sub(there, 1, 1) == '-' then
    there = ARGV[3]
    redis.call('HSET', list, ARGV[2], there)
    redis.call('HINCRBY', list, '', 1)
  end
  return {redis.call('HGET', list, ''), there}
end
if what == 'change' then
  if (redis.call('HGET', list, '') or '0') ~= ARGV[2] then return 0 end
  for i = 3, #ARGV, 2 do redis.call('HSET', list, ARGV[i], ARGV[i + 1]) end
  return redis.call('HINCRBY', list, '', 1)
end
local there = redis.call('HGET', list, ARGV[2])
if there and string.sub(there, 1, 1) == '-' then
  redis.call('HDEL', list, ARGV[2])
  redis.call('HINCRBY', list, '', 1)
end
return 1
