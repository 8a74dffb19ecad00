-- ARGV: now, then for each job that we took: id, its scheduler, the next time by a cron
--       pattern or '', its options
-- Adds the next job of each scheduler, as the worker of BullMQ does that takes one.
local function next_tick(prev, every, offset)
  local at = prev + every
  if at < ms then -- some were missed
    at = math.floor(ms / every) * every + offset
    if at <= ms then at = at + every end
  end
  return math.floor(at)
end

local function schedule(id, scheduler, at, opts)
  local ticks = base .. 'repeat'
  local prev = tonumber(call('ZSCORE', ticks, scheduler) or nil)
  local readable, told = pcall(cjson.decode, opts)
  local rule = readable and type(told) == 'table' and told['repeat']
  -- Another one goes on from here: it was scheduled again, or this was seen before.
  if not prev or type(rule) ~= 'table' or id ~= 'repeat:' .. scheduler .. ':' .. text(prev) then return end
  local count, limit, last = (tonumber(rule.count) or 0) + 1, tonumber(rule.limit), tonumber(rule.endDate)
  if limit and count > limit or last and ms > last then return end
  local name, data, every, offset =
    unpack(call('HMGET', ticks .. ':' .. scheduler, 'name', 'data', 'every', 'offset'))
  every = tonumber(every or rule.every)
  if every and every > 0 then at = next_tick(prev, every, tonumber(offset or rule.offset) or 0) end
  if not at or not name then return end
  local new = 'repeat:' .. scheduler .. ':' .. text(at)
  if call('EXISTS', base .. new) == 1 then return tell('duplicated', new) end
  call('ZADD', ticks, text(at), scheduler)
  call('HINCRBY', ticks .. ':' .. scheduler, 'ic', 1)
  call('INCR', base .. 'id')
  local delay, priority = math.max(0, at - ms), whole(told.priority, 0)
  rule.count, told.delay, told.jobId, told.timestamp = count, delay, new, ms
  if not every then told.prevMillis = at end
  call('HSET', base .. new, 'name', name, 'data', data or '{}', 'opts', cjson.encode(told),
    'timestamp', text(ms), 'delay', text(delay), 'priority', text(priority), 'rjk', scheduler)
  tell('added', new, 'name', name)
  put_in_line(new, delay, priority)
end

for i = 2, #ARGV, 4 do schedule(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]) end
return 1
