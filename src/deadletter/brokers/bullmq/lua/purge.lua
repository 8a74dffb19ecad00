-- ARGV: now, version, name, then names and options of others that change with it
-- Takes the mailbox off the list and deletes the queue; answers how many messages there
-- were, or -1 if somebody changed anything meanwhile. Its counter of ids stays, so that
-- no id comes twice.
if (call('HGET', KEYS[1], '') or '0') ~= ARGV[2] then return -1 end
call('HDEL', KEYS[1], ARGV[3])
for i = 4, #ARGV, 2 do call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
call('HINCRBY', KEYS[1], '', 1)

local count = 0
local function clear(ids, counts)
  for _, id in ipairs(ids) do
    local key = base .. id
    local like = call('HGET', key, 'deid')
    if like then call('DEL', base .. 'de:' .. like, base .. 'dn:' .. like) end
    remove(key)
    call('DEL', key .. ':lock')
    if counts then count = count + 1 end
  end
end
for _, list in ipairs({'wait', 'paused', 'active'}) do clear(call('LRANGE', base .. list, 0, -1), true) end
for set, counts in pairs({
  prioritized = true, delayed = true, ['waiting-children'] = true, completed = false, failed = false,
}) do
  clear(call('ZRANGE', base .. set, 0, -1), counts)
end
for _, scheduler in ipairs(call('ZRANGE', base .. 'repeat', 0, -1)) do
  call('DEL', base .. 'repeat:' .. scheduler)
end
call('DEL', base .. 'repeat', base .. 'dlq:copies', wait, base .. 'paused', active, prioritized, delayed, base .. 'waiting-children',
  base .. 'completed', base .. 'failed', base .. 'events', marker, meta, base .. 'pc', base .. 'limiter',
  base .. 'stalled', base .. 'stalled-check', base .. 'metrics:completed', base .. 'metrics:completed:data',
  base .. 'metrics:failed', base .. 'metrics:failed:data', claimed, suspects, expiry, base .. 'dlq:sends', base .. 'dlq:far', bell)
return count
