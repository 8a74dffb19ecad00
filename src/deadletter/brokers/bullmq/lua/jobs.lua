-- Jobs that somebody has, or had.
-- 'dlq:token' is whose it was last among us, 'dlq:held' how: 1 alone, 2 doomed, else 0.
local ALONE, DOOMED = '1', '2'

-- A job that was lost with its worker, and that nobody has run since.
local function is_suspect(fields)
  return fields.suspect and fields.suspect == fields.ats
end

local READ = {
  'data', 'dlq', 'name', 'opts', 'timestamp', 'ats', 'atm', 'dlq:first', 'dlq:story',
  'dlq:expires', 'dlq:suspect', 'stc', 'dlq:stc', 'dlq:held', 'processedOn', 'priority', 'defa',
  'dlq:charged', 'dlq:fate', 'dlq:lineage', 'rjk', 'dlq:counted',
}

local function read(id)
  local got = call('HMGET', base .. id, unpack(READ))
  if not got[3] then return nil end -- somebody removed it
  return {
    got = got, ats = got[6] or '0', charged = whole(got[18], 0), first = got[8],
    expires = got[10], suspect = got[11], stalls = got[12] or '0',
    stalls_seen = got[13] or '0', held = got[14], began = whole(got[15]), priority = got[16], defer = got[17],
  }
end

-- Make a suspect of a job that stands in no line; it does not hold up the others.
local function suspected(id, job, due)
  call('HSET', base .. id, 'dlq:suspect', job.ats, 'dlq:stc', job.stalls, 'dlq:held', 0)
  call('ZADD', suspects, text(due * 1000), id)
  call('ZADD', bell, 0, '0')
end

-- Attempts of BullMQ's workers count for its own limit, ours for our policy.
local function charge(id)
  count_on(id, 'atm', 1)
  return count_on(id, 'dlq:charged', 1)
end

-- Lost in company, it may have been a neighbour's fault: not charged. Lost alone, it
-- was its own.
local function charged_for_loss(id, job)
  if job.held == ALONE then job.charged = charge(id) end
end

local function take(id, job, token, lease, held)
  local began = job.first or text(job.began and job.began * 1000 or now)
  call('SET', base .. id .. ':lock', token, 'PX', math.max(1, math.ceil(lease / 1000)))
  call('HSET', base .. id, 'processedOn', text(ms), 'dlq:token', token, 'dlq:held', held, 'dlq:first', began,
    'dlq:lease', text(lease))
  -- Whether it has died with too many workers is for our policy to say, not for BullMQ.
  if job.defer and string.sub(job.defer, 1, 11) == 'job stalled' then
    call('HDEL', base .. id, 'defa')
    job.defer = nil
  end
  if job.got[19] then -- given up once, and retried by somebody: it starts over
    call('HDEL', base .. id, 'dlq:fate', 'dlq:charged')
    job.charged = 0
    -- The attempt it was given up by is told in its letter alone: a gap in the story says
    -- that there may be one, to be closed when it works this time.
    job.got[9] = string.match(job.got[9] or '', '^(.*)\n') or ''
  end
  if held ~= DOOMED then job.ats = text(count_on(id, 'ats', 1)) end
  call('LPUSH', active, id)
  call('ZADD', claimed, text(now + lease), id)
  call('ZREM', expiry, id)
  call('ZREM', suspects, id)
  tell('active', id, 'prev', 'waiting')
  -- data, envelope, name, options, timestamp, attempts, charged before, first, story, expiry,
  -- how it is held, why BullMQ would have it fail, the letter it is a copy of, its scheduler,
  -- what the data was before its attempts were counted in it
  local got = job.got
  return {
    id, got[1] or '', got[2] or '', got[3], got[4] or '', got[5] or '', job.ats, text(job.charged),
    began, got[9] or '', got[10] or '', held, job.defer or '', got[20] or '', got[21] or '', got[22] or '',
  }
end

-- Whether it is theirs who have this token, and their lease still runs.
local function holds(id, token)
  local till = call('ZSCORE', claimed, id)
  return till and tonumber(till) > now and call('GET', base .. id .. ':lock') == token
end

-- Take it out of where it waits; says whether it did.
local function left_line(id)
  return call('LREM', line, 1, id) + call('ZREM', prioritized, id) + call('ZREM', delayed, id) > 0
end

-- Nobody has it any more; says whether it was among the active.
local function let_go(id)
  call('DEL', base .. id .. ':lock')
  call('SREM', base .. 'stalled', id)
  call('ZREM', claimed, id)
  return call('LREM', active, -1, id) > 0
end
