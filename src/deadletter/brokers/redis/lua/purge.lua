-- ARGV: now
-- Takes everything away but the counts; answers how many messages there were.
local count = call('HLEN', bodies)
call('UNLINK', bodies, states, stories, ready, suspects, claimed, expiry, bell, bell_alone)
call('HDEL', meta, 'alive', 'expire_after', 'window', 'far', 'far_alone')
if count > 0 then call('HINCRBY', meta, 'purged', count) end
return count
