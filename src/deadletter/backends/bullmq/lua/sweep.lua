-- ARGV: now, token, lease, limit, max_attempts (0: none), mortal ('1')
-- Answers how many were lost, whether suspects wait, and what is doomed, claimed.
local token, lease, limit, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local stalled, lost = base .. 'stalled', 0
promote()

local function lose(id)
  local job = let_go(id) and read(id)
  if not job then return end -- removed, or BullMQ was faster
  charged_for_loss(id, job)
  job.stalls = text(count_on(id, 'stc', 1))
  suspected(id, job, ms)
  if job.expires then call('ZADD', expiry, job.expires, id) end
  line_up(id)
  tell('waiting', id, 'prev', 'active')
  tell('stalled', id)
  lost = lost + 1
end

-- Ours: their leases have run out.
for _, id in ipairs(call('ZRANGEBYSCORE', claimed, '-inf', text(now), 'LIMIT', 0, 500)) do
  local holder = call('GET', base .. id .. ':lock')
  if holder and holder ~= call('HGET', base .. id, 'dlq:token') then
    call('ZREM', claimed, id) -- it is with a worker of BullMQ by now
  else
    lose(id)
  end
end

-- Those of BullMQ's own workers: without a lock at two looks, as BullMQ does it.
for _, id in ipairs(call('LRANGE', active, -1000, -1)) do
  if call('EXISTS', base .. id .. ':lock') == 0 and not call('ZSCORE', claimed, id) then
    if call('SADD', stalled, id) == 0 then lose(id) end
  end
end
if lost > 0 then wake() end

local doomed = {}
-- It is not an attempt, so none is counted.
local function doom(id, job)
  if left_line(id) then
    doomed[#doomed + 1] = take(id, job, token, lease, DOOMED)
  else
    call('ZREM', expiry, id) -- somebody has it, or it is gone
  end
end

if ARGV[6] == '1' then
  for _, id in ipairs(call('ZRANGEBYSCORE', expiry, '-inf', text(now), 'LIMIT', 0, limit)) do
    local job = read(id)
    if job then doom(id, job) else call('ZREM', expiry, id) end
  end
  for _, id in ipairs(most > 0 and call('ZRANGE', suspects, 0, 499) or {}) do
    local job = read(id)
    if job and is_suspect(job) and job.atm >= most and #doomed < limit then doom(id, job) end
  end
end

local waiting = 0
for _, id in ipairs(call('ZRANGEBYSCORE', suspects, '-inf', text(now), 'LIMIT', 0, 500)) do
  local job = read(id)
  if job and is_suspect(job) then
    waiting = 1
    break
  end
  call('ZREM', suspects, id)
end
if #doomed == 0 then return {lost, waiting} end
return {lost, waiting, doomed}
