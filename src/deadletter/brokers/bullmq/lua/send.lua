-- ARGV: now, token, the token before it on its lane, delay, then for each message:
--       data, envelope, name, options, priority, its expiry or ''
-- Answers 0 if the mailbox has to be listed first, else 1.
-- A token seen before was a send whose answer got lost: its messages are here.
local CENTURY = 3155760000 -- seconds; no expiry is further away
local options = listed()
if not options then return 0 end
local sends = base .. 'dlq:sends'
if call('ZADD', sends, 'NX', text(now), ARGV[2]) == 0 then return 1 end
if ARGV[3] == '' then
  call('ZREMRANGEBYSCORE', sends, '-inf', text(now - 86400000000))
else
  call('ZREM', sends, ARGV[3])
end
if not known[5] then
  call('HSET', meta, 'opts.maxLenEvents', events_kept)
  call('HSETNX', meta, 'version', 'bullmq:6')
end

local life = cjson.decode(options).expire_after
local given = type(life) == 'number' and text(now + math.min(life, CENTURY) * 1000000)
local count, delay = (#ARGV - 4) / 6, tonumber(ARGV[4])
local last = call('INCRBY', base .. 'id', count) - count
local at_once = false
for i = 5, #ARGV, 6 do
  last = last + 1
  local id, name, priority = text(last), ARGV[i + 2], ARGV[i + 4]
  while call('EXISTS', base .. id) == 1 do -- somebody chose that id himself
    last = call('INCR', base .. 'id')
    id = text(last)
  end
  local expires = ARGV[i + 5] ~= '' and ARGV[i + 5] or given
  local due = due_at(now + delay, expires)
  local is_late = delay > 0 and due > ms
  local fields = {
    'name', name, 'data', ARGV[i], 'opts', ARGV[i + 3], 'timestamp', text(ms),
    'delay', is_late and text(due - ms) or '0', 'priority', priority, 'dlq', ARGV[i + 1],
  }
  if expires then
    fields[#fields + 1], fields[#fields + 2] = 'dlq:expires', expires
    call('ZADD', expiry, expires, id)
  end
  call('HSET', base .. id, unpack(fields))
  tell('added', id, 'name', name)
  if is_late then
    hold_back(id, due)
  else
    line_up(id, priority)
    tell('waiting', id)
    at_once = true
  end
end
if at_once then wake() else wake_later() end
return 1
