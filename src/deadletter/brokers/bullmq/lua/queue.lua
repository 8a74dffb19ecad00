-- One queue of BullMQ. KEYS: the list of our mailboxes, what all keys of the queue
-- begin with. ARGV[1]: now in microseconds, or '' for the server's own time.
-- What BullMQ keeps:
--   <id>                hash of a job; <id>:lock is the token of who has it
--   wait (tail first), paused, prioritized, delayed, active, completed, failed
--   marker, events, meta, id, pc, limiter, stalled
-- What we add: fields of a job and of nothing else, all beginning with 'dlq', and
--   dlq:claimed     end of the lease -> id, of what we have; its length is in the job
--   dlq:suspects    due -> id; such a job waits like others, but we hand it out alone
--   dlq:expiry      expires_at -> id, of what nobody has
--   dlq:sends       time -> token of the last send of every producer's lane
--   dlq:bell        wakes those who wait for suspects
local call, base = redis.call, KEYS[2]
local wait, active, prioritized = base .. 'wait', base .. 'active', base .. 'prioritized'
local delayed, marker, meta = base .. 'delayed', base .. 'marker', base .. 'meta'
local claimed, suspects = base .. 'dlq:claimed', base .. 'dlq:suspects'
local expiry, bell = base .. 'dlq:expiry', base .. 'dlq:bell'
local TURN, STEP = 4294967296, 4096 -- how BullMQ puts an order into scores

local function text(number) return string.format('%.0f', number) end

-- A number that anybody may have written, as commands want it: whole, not too large.
local function whole(given, otherwise)
  local number = tonumber(given)
  return number and math.floor(math.max(-1, math.min(number, 1e12))) or otherwise
end

-- Count on, whatever stands there: a script must not stop half-way.
local function count_on(id, field, by)
  local number = whole(call('HGET', base .. id, field), 0) + by
  call('HSET', base .. id, field, text(number))
  return number
end

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local ms = math.floor(now / 1000)

local function listed()
  local name = string.sub(base, #KEYS[1] - #'dlq-mailboxes' + 1, -2)
  return call('HGET', KEYS[1], name)
end

local known = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration', 'opts.maxLenEvents', 'version')
local is_paused, most_active = known[1], tonumber(known[2])
local events_kept = known[5] or '10000'
-- Before version 6 the jobs of a paused queue waited in a list of their own.
local is_old = known[6] and (tonumber(string.match(known[6], ':(%d+)')) or 6) < 6
local line = is_paused and is_old and base .. 'paused' or wait

local function tell(event, id, ...)
  call('XADD', base .. 'events', 'MAXLEN', '~', events_kept, '*', 'event', event, 'jobId', id, ...)
end

local function is_closed()
  return is_paused or most_active and call('LLEN', active) >= most_active
end

-- Wakes one of those who wait, whether his worker is ours or not.
local function wake()
  if not is_closed() then call('ZADD', marker, 0, '0') end
end

local function wake_later()
  local head = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  if head[2] then call('ZADD', marker, text(math.floor(head[2] / STEP)), '1') end
end

local function line_up(id, priority)
  priority = whole(priority, 0)
  if priority > 0 then
    local turn = call('INCR', base .. 'pc')
    call('ZADD', prioritized, text(priority * TURN + turn % TURN), id)
  else
    call('LPUSH', line, id)
  end
end

-- Equally due, they come in the order they were put here.
local function hold_back(id, due)
  local first, last = due * STEP, (due + 1) * STEP - 1
  local latest = call('ZREVRANGEBYSCORE', delayed, text(last), text(first), 'WITHSCORES', 'LIMIT', 0, 1)
  if latest[2] then first = math.min(latest[2] + 1, last) end
  call('ZADD', delayed, text(first), id)
  tell('delayed', id, 'delay', text(due))
end

-- A new job, due after so many milliseconds.
local function put_in_line(id, delay, priority)
  if delay > 0 then
    hold_back(id, ms + delay)
    wake_later()
  else
    line_up(id, priority)
    tell('waiting', id)
    wake()
  end
end

local function promote()
  local due = call('ZRANGEBYSCORE', delayed, 0, text((ms + 1) * STEP - 1), 'LIMIT', 0, 1000)
  if #due == 0 then return end
  call('ZREM', delayed, unpack(due))
  for _, id in ipairs(due) do
    line_up(id, call('HGET', base .. id, 'priority'))
    call('HSET', base .. id, 'delay', 0)
    tell('waiting', id, 'prev', 'delayed')
  end
  wake()
end

-- When to hand it out, in milliseconds: what has expired is due at once.
local function due_at(at, expires)
  if expires then at = math.min(at, tonumber(expires)) end
  return at > now and math.ceil(at / 1000) or ms
end
