-- ARGV: now, token, lease, limit, alone ('1')
-- Answers nothing if the mailbox has to be listed first; when nothing is due,
-- microseconds until something is (-1: there is nothing); else the claimed.
if not listed() then return false end
local token, lease, limit, alone = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
promote()

-- What the queue's own options leave us: all workers together may have so many at a
-- time, and so many within a while.
local pause = -1
if is_paused then limit = 0 end
if most_active then limit = math.min(limit, most_active - call('LLEN', active)) end
local most, limiter = tonumber(known[3]), base .. 'limiter'
if most then
  local left = most - tonumber(call('GET', limiter) or 0)
  if left <= 0 then pause = math.max(1, call('PTTL', limiter)) * 1000 end
  limit = math.min(limit, left)
end

local taken, hasty = {}, false
local function try(id, usual)
  local job = read(id)
  if not job then return end
  if job.stalls ~= job.stalls_seen then -- BullMQ has taken it from a lost worker
    charged_for_loss(id, job)
    suspected(id, job, ms)
    job.suspect = job.ats
  end
  if usual and is_suspect(job) then
    if call('ZADD', suspects, 'NX', text(ms * 1000), id) == 1 then call('ZADD', bell, 0, '0') end
    return true
  end
  taken[#taken + 1] = take(id, job, token, lease, usual and '0' or ALONE)
end

if alone then
  local some = limit > 0 and call('ZRANGEBYSCORE', suspects, '-inf', text(now), 'LIMIT', 0, 100) or {}
  for _, id in ipairs(some) do
    if #taken == 1 then break end
    local job = read(id)
    if job and is_suspect(job) and left_line(id) then
      try(id, false)
    else
      call('ZREM', suspects, id) -- somebody else has run it meanwhile
    end
  end
else
  local length, aside = call('LLEN', wait), {}
  local unseen = math.min(length, limit + 1000)
  hasty = unseen < length
  while #taken < limit and unseen > 0 do
    local want = math.min(limit - #taken, unseen)
    local some = call('LRANGE', wait, -want, -1)
    call('LTRIM', wait, 0, -want - 1)
    unseen = unseen - want
    for i = #some, 1, -1 do
      if try(some[i], true) then aside[#aside + 1] = some[i] end
    end
  end
  while #taken < limit do
    local head = call('ZPOPMIN', prioritized)
    if not head[1] then
      call('DEL', base .. 'pc')
      break
    end
    if try(head[1], true) then aside[#aside + 1] = head[1] end
  end
  for _, id in ipairs(aside) do call('LPUSH', wait, id) end
end

if #taken == 0 then
  -- Behind these suspects there are others: look again, unless they are suspects, too.
  if hasty and limit > 0 and call('ZCARD', suspects) < call('LLEN', wait) then return {'0'} end
  local lane = alone and suspects or delayed
  local head = call('ZRANGE', lane, 0, 0, 'WITHSCORES')
  if pause > 0 or not head[2] or is_closed() then return {text(pause)} end
  local due = alone and tonumber(head[2]) or math.floor(head[2] / STEP) * 1000
  return {text(math.max(1000, due - now))}
end
if most then
  if call('INCRBY', limiter, #taken) == #taken then call('PEXPIRE', limiter, whole(known[4], 1000)) end
end
if call('EXISTS', wait, prioritized) > 0 then wake() else wake_later() end
return {text(now), taken}
