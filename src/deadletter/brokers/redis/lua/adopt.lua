-- ARGV: now, version of the options, expire_after ('' for none)
-- The mailbox takes messages from now on, with these options unless it has newer ones.
local version = tonumber(call('HGET', meta, 'version') or 0)
if tonumber(ARGV[2]) >= version then
  call('HSET', meta, 'version', ARGV[2])
  if ARGV[3] == '' then
    call('HDEL', meta, 'expire_after')
  else
    call('HSET', meta, 'expire_after', ARGV[3])
  end
end
call('HSET', meta, 'alive', 1)
return 1
