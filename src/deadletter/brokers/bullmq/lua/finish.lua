-- What BullMQ does when a job ends, beyond the job itself: its parent, others like it,
-- and how many that ended are kept.
local function remove(key)
  call('DEL', key, key .. ':logs', key .. ':dependencies', key .. ':processed', key .. ':failed',
    key .. ':unsuccessful')
end

-- A job that waited for its children lines up, in whatever queue it is.
local function release(parent)
  local queue, id = string.match(parent, '^(.*):([^:]*)$')
  local waiting = call('ZREM', queue .. ':waiting-children', id)
  if waiting == 0 or call('EXISTS', parent) == 0 then return false end
  local priority, delay = unpack(call('HMGET', parent, 'priority', 'delay'))
  priority, delay = whole(priority, 0), whole(delay, 0)
  if delay > 0 then
    local due = text(ms + delay)
    call('ZADD', queue .. ':delayed', text((ms + delay) * STEP), id)
    call('ZADD', queue .. ':marker', due, '1')
    call('XADD', queue .. ':events', '*', 'event', 'delayed', 'jobId', id, 'delay', due)
    return true
  end
  if priority > 0 then
    local turn = call('INCR', queue .. ':pc')
    call('ZADD', queue .. ':prioritized', text(priority * TURN + turn % TURN), id)
  else
    call('RPUSH', queue .. ':wait', id)
  end
  if call('HEXISTS', queue .. ':meta', 'paused') == 0 then call('ZADD', queue .. ':marker', 0, '0') end
  call('XADD', queue .. ':events', '*', 'event', 'waiting', 'jobId', id, 'prev', 'waiting-children')
  return true
end

local function tell_parent(key, parent, about, is_ok, is_kept, outcome)
  local pending = parent .. ':dependencies'
  local readable, ways = pcall(cjson.decode, about or '{}')
  if not readable or type(ways) ~= 'table' then ways = {} end
  if not is_ok and is_kept and not (ways.fpof or ways.cpof or ways.idof or ways.rdof) then return end
  if call('SREM', pending, key) == 0 then return end
  if is_ok then
    call('HSET', parent .. ':processed', key, outcome)
  elseif ways.fpof then
    call('ZADD', parent .. ':unsuccessful', text(ms), key)
    if call('EXISTS', parent) == 1 then call('HSET', parent, 'defa', 'child ' .. key .. ' failed') end
    release(parent)
    return
  elseif ways.cpof or ways.idof then
    call('HSET', parent .. ':failed', key, outcome)
  end
  if ways.cpof and not is_ok or call('SCARD', pending) == 0 then release(parent) end
end

-- Others like it were turned away while it was there; the latest of them may be next.
local function make_way(id, like)
  local first, nxt = base .. 'de:' .. like, base .. 'dn:' .. like
  local life = call('PTTL', first)
  if life == 0 or life == -1 and call('GET', first) == id then call('DEL', first) end
  if call('EXISTS', nxt) == 0 then return end
  local name, data, opts, parent, about, pending, schedule, new =
    unpack(call('HMGET', nxt, 'name', 'data', 'opts', 'pk', 'pd', 'pdk', 'rjk', 'jid'))
  local number, told = call('INCR', base .. 'id'), cjson.decode(opts)
  new = new or text(number)
  local ttl = type(told.de) == 'table' and not told.de.keepLastIfActive and whole(told.de.ttl, 0) or 0
  call('SET', first, new)
  if ttl > 0 then call('PEXPIRE', first, ttl) end
  local delay, priority = whole(told.delay, 0), whole(told.priority, 0)
  call('HSET', base .. new, 'name', name, 'data', data, 'opts', opts, 'timestamp', text(ms),
    'delay', text(delay), 'priority', text(priority), 'deid', like)
  if parent then call('HSET', base .. new, 'parentKey', parent, 'parent', about) end
  if schedule then call('HSET', base .. new, 'rjk', schedule) end
  if pending then call('SADD', pending, base .. new) end
  tell('added', new, 'name', name)
  put_in_line(new, delay, priority)
  call('DEL', nxt)
end

-- How many that ended so are kept and for how long: as the job says, else as the worker
-- says, else all of them.
local function kept(wish, usual)
  if wish == nil then wish = cjson.decode(usual) end
  if type(wish) == 'table' then return wish.count ~= 0, whole(wish.count), whole(wish.age) end
  if type(wish) == 'number' then return wish ~= 0, whole(wish) end
  return not wish or wish == cjson.null
end

local function forget_old(set, count, age)
  local old = age and call('ZRANGEBYSCORE', set, '-inf', text(ms - age * 1000), 'LIMIT', 0, 1000) or {}
  if count and count > 0 then
    for _, id in ipairs(call('ZREVRANGE', set, count, count + 999)) do old[#old + 1] = id end
  end
  for _, id in ipairs(old) do
    call('ZREM', set, id)
    remove(base .. id)
  end
end

-- `outcome` is what it returned, or why it failed; `fate` and `story` are those of a job
-- that we gave up.
local function finish(id, is_ok, outcome, fate, story)
  local key = base .. id
  local parent, about, like, opts = unpack(call('HMGET', key, 'parentKey', 'parent', 'deid', 'opts'))
  local readable, told = pcall(cjson.decode, opts or '{}')
  if not readable or type(told) ~= 'table' then told = {} end
  local wish, usual = told.removeOnFail, ARGV[4]
  if is_ok then wish, usual = told.removeOnComplete, ARGV[3] end
  local keep, count, age = kept(wish, usual)
  if like then make_way(id, like) end
  if parent then tell_parent(key, parent, about, is_ok, keep, outcome) end
  local made = count_on(id, 'atm', 1)
  local what = is_ok and 'returnvalue' or 'failedReason'
  if keep then
    local set = base .. (is_ok and 'completed' or 'failed')
    call('ZADD', set, text(ms), id)
    call('HSET', key, what, outcome, 'finishedOn', text(ms))
    -- With its story, draining it is hearing of the same death again.
    if fate then call('HSET', key, 'dlq:fate', fate) end
    if fate and story ~= '' then call('HSET', key, 'dlq:story', story) end
    call('HDEL', key, 'defa')
    forget_old(set, count, age)
  else
    remove(key)
  end
  tell(is_ok and 'completed' or 'failed', id, what, outcome, 'prev', 'active')
  if not is_ok and made >= (tonumber(told.attempts) or 0) then
    tell('retries-exhausted', id, 'attemptsMade', text(made))
  end
end
