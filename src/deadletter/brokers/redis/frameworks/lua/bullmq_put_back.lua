-- Puts a job back, if nobody else has its id. KEYS: what all keys of the queue begin with.
-- ARGV: id, another id to use instead ('': none), digest of the data as it was drained,
--       the copy ('': unknown), lifo ('1'), number of fields, their names and values, log lines
-- Answers the state of the job that has the id, or an empty text if all is well.
local call, base = redis.call, KEYS[1]
local id, other, digest, copy, is_lifo = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local count = tonumber(ARGV[6])
local TURN, WEEK = 4294967296, 604800000
-- Fields of runs that are over; both spellings are BullMQ's.
local OVER = {
  'finishedOn', 'processedOn', 'failedReason', 'stacktrace', 'atm', 'ats', 'attemptsMade', 'stc', 'returnvalue',
  'defa', 'progress', 'pb', 'dlq:token', 'dlq:held', 'dlq:first', 'dlq:lease', 'dlq:story', 'dlq:suspect',
  'dlq:stc', 'dlq:charged', 'dlq:fate', 'dlq:counted',
}
local time = call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local known = call('HMGET', base .. 'meta', 'paused', 'version', 'opts.maxLenEvents', 'concurrency')
local major = known[2] and tonumber(string.match(known[2], ':(%d+)')) or 0
-- Before version 6 the jobs of a paused queue waited in a list of their own.
local line = base .. (known[1] and major < 6 and 'paused' or 'wait')

local function tell(event, ...)
  call('XADD', base .. 'events', 'MAXLEN', '~', known[3] or '10000', '*', 'event', event, 'jobId', id, ...)
end

local function state_of(job)
  for _, set in ipairs({'completed', 'failed', 'delayed', 'prioritized', 'waiting-children'}) do
    if call('ZSCORE', base .. set, job) then return set end
  end
  return call('EXISTS', base .. job .. ':lock') == 1 and 'active' or 'waiting'
end

-- The very job that was drained: whoever drained it was stopped before forgetting it.
local function is_the_same(job)
  return call('ZSCORE', base .. 'failed', job) and redis.sha1hex(call('HGET', base .. job, 'data') or '') == digest
end

local copies = base .. 'dlq:copies'
if copy ~= '' then
  call('ZREMRANGEBYSCORE', copies, '-inf', ms - WEEK)
  for _, job in ipairs({id, other}) do
    if call('ZSCORE', copies, copy .. ' ' .. job) then return '' end -- it was put back before
  end
end

local first, key = id, base .. id
if call('EXISTS', key) == 1 and not is_the_same(id) then
  local state = state_of(id)
  local is_parent = call('EXISTS', key .. ':dependencies', key .. ':processed', key .. ':unsuccessful') > 0
  if other == '' or is_parent or call('EXISTS', base .. other) == 1 then return state end
  id, key = other, base .. other
end

call('ZREM', base .. 'failed', id)
call('HDEL', key, unpack(OVER))
call('HSET', key, unpack(ARGV, 7, 6 + 2 * count))
if id ~= first then call('HSET', key, 'dlq:instead-of', first) end
if #ARGV > 6 + 2 * count and call('EXISTS', key .. ':logs') == 0 then
  for i = 7 + 2 * count, #ARGV do call('RPUSH', key .. ':logs', ARGV[i]) end
end
if copy ~= '' then
  call('ZADD', copies, ms, copy .. ' ' .. id)
  call('PEXPIRE', copies, WEEK)
end

-- Its parent waits for it again, if that has not gone on meanwhile.
local parent = call('HGET', key, 'parentKey')
if parent then
  local gave_up = call('ZREM', parent .. ':unsuccessful', base .. first) + call('HDEL', parent .. ':failed', base .. first)
  local is_renamed = id ~= first and call('SISMEMBER', parent .. ':dependencies', base .. first) == 1
  if gave_up > 0 or is_renamed then call('SADD', parent .. ':dependencies', key) end
end

-- It waits for children that failed, too: they go first, whenever they are put back.
for _, child in ipairs(call('ZRANGE', key .. ':unsuccessful', 0, -1)) do
  call('SADD', key .. ':dependencies', child)
end
call('DEL', key .. ':unsuccessful')
if call('SCARD', key .. ':dependencies') > 0 then
  call('ZADD', base .. 'waiting-children', ms, id)
  tell('waiting-children', 'prev', 'failed')
  return ''
end

local priority = tonumber(call('HGET', key, 'priority')) or 0
if priority > 0 then
  local turn = call('INCR', base .. 'pc')
  call('ZADD', base .. 'prioritized', string.format('%.0f', math.min(priority, 2097152) * TURN + turn % TURN), id)
else
  call(is_lifo and 'RPUSH' or 'LPUSH', line, id)
end
local most = tonumber(known[4])
local is_closed = known[1] or most and call('LLEN', base .. 'active') >= most
if major >= 5 and not is_closed then call('ZADD', base .. 'marker', 0, '0') end
tell('waiting', 'prev', 'failed')
return ''
