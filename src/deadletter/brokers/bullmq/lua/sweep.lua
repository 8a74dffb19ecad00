-- ARGV: now, token, lease, limit, max_attempts (0: none), mortal ('1')
-- Answers how many were lost, whether suspects wait, how many waits and leases were
-- shortened, how far ahead they were, the time, and what is doomed, claimed.
local token, lease, limit, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local stalled, lost = base .. 'stalled', 0

-- Nothing waits longer than it was asked to: what would was written while the clock was
-- ahead. A window over the furthest moves on with every sweep.
local SLACK, SLICE, misdated, ahead = 1000000, 500, 0, 0
local function is_ahead(lead)
  if lead <= SLACK then return false end
  misdated, ahead = misdated + 1, math.max(ahead, lead)
  return true
end
local window = base .. 'dlq:far'
local below = call('GET', window)
local far = call('ZREVRANGEBYSCORE', delayed, '(' .. (below or '+inf'),
  '(' .. text(math.ceil((now + SLACK) / 1000) * STEP), 'WITHSCORES', 'LIMIT', 0, SLICE)
for i = 1, #far, 2 do
  local id, due = far[i], math.floor(far[i + 1] / STEP)
  local wait = tonumber(call('HGET', base .. id, 'delay'))
  if wait and is_ahead((due - wait - ms) * 1000) then
    call('ZREM', delayed, id)
    hold_back(id, ms + wait)
  end
end
if #far == 2 * SLICE then
  call('SET', window, far[#far])
elseif below then
  call('DEL', window)
end
if misdated > 0 then wake_later() end
for _, id in ipairs(call('ZRANGEBYSCORE', suspects, '(' .. text(now + SLACK), '+inf', 'LIMIT', 0, SLICE)) do
  local held = call('ZSCORE', delayed, id)
  local due = held and math.floor(held / STEP) or ms
  call('ZADD', suspects, text(due * 1000), id)
  call('ZADD', bell, 0, '0')
end
local late = call('ZREVRANGEBYSCORE', claimed, '+inf', '(' .. text(now + SLACK), 'WITHSCORES', 'LIMIT', 0, SLICE)
for i = 1, #late, 2 do
  local id = late[i]
  local its = tonumber(call('HGET', base .. id, 'dlq:lease'))
  if its and is_ahead(late[i + 1] - its - now) then
    call('ZADD', claimed, text(now + its), id)
    call('PEXPIRE', base .. id .. ':lock', math.max(1, math.ceil(its / 1000)))
  end
end
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
    if job and is_suspect(job) and job.charged >= most and #doomed < limit then doom(id, job) end
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
local found = {lost, waiting, misdated, text(ahead), text(now)}
if #doomed > 0 then found[#found + 1] = doomed end
return found
