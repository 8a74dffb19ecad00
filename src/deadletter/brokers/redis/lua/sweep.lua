-- ARGV: now, token, lease, limit, max_attempts (0: none), mortal ('1')
-- Answers how many were lost, whether suspects wait, how many waits and leases were
-- shortened, how far ahead they were, the time, and what is doomed, claimed.
local token, limit, most = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local now_text, until_text = text(now), text(now + ARGV[3])

-- Nothing waits longer than it was asked to: what would was written while the clock was
-- ahead. A window over the furthest moves on with every sweep.
local SLACK, misdated, ahead = 1000000, 0, 0
local function is_ahead(lead)
  if lead <= SLACK then return false end
  misdated, ahead = misdated + 1, math.max(ahead, lead)
  return true
end
local function shorten_waits(lane, its_bell, window)
  local below = call('HGET', meta, window)
  local far = call('ZREVRANGEBYSCORE', lane, '(' .. (below or '+inf'), '(' .. text(now + SLACK),
    'WITHSCORES', 'LIMIT', 0, SLICE)
  local seqs = {}
  for i = 1, #far, 2 do seqs[#seqs + 1] = far[i] end
  local due, stated = {}, {}
  for i, state in ipairs(states_of(seqs)) do
    local row = state and read(state)
    local wait = row and tonumber(string.sub(row.till, 2)) or 0
    if is_ahead(far[2 * i] - wait - now) then
      put(due, text(now + wait), seqs[i])
      if row then
        row.due = text(now + wait)
        put(stated, seqs[i], written(row))
      end
    end
  end
  if #due > 0 then call('ZADD', lane, unpack(due)) ring(its_bell) end
  if #stated > 0 then call('HSET', states, unpack(stated)) end
  if #seqs == SLICE then
    call('HSET', meta, window, far[#far])
  elseif below then
    call('HDEL', meta, window)
  end
end
shorten_waits(ready, bell, 'far')
shorten_waits(suspects, bell_alone, 'far_alone')

local longest = tonumber(call('HGET', meta, 'lease'))
local late = longest and call('ZREVRANGEBYSCORE', claimed, '+inf', '(' .. text(now + longest + SLACK),
  'WITHSCORES', 'LIMIT', 0, SLICE) or {}
for i = 1, #late, 2 do
  local state = call('HGET', states, late[i])
  if state and is_ahead(late[i + 1] - longest - now) then
    local row = read(state)
    row.till = text(now + longest)
    call('HSET', states, late[i], written(row))
    call('ZADD', claimed, row.till, late[i])
  end
end

local lost = call('ZRANGEBYSCORE', claimed, '-inf', now_text, 'LIMIT', 0, SLICE)
for i, state in ipairs(states_of(lost)) do
  local row = state and read(state) or never_claimed(now_text)
  -- Lost in company, it may have been a neighbour's fault: not charged. Lost alone,
  -- it was its own.
  if not row.alone then row.spared = row.spared + 1 end
  row.token, row.suspect, row.alone = NONE, true, false
  line_up(lost[i], row)
end
lined_up()

local doomed, told = {}, {}
-- It is not an attempt, so none is counted; and held alone, so that losing it again
-- neither charges nor spares it anything.
local function doom(seq, row)
  row.token, row.till, row.alone = token, until_text, true
  local state = written(row)
  call('ZREM', ready, seq)
  call('ZREM', suspects, seq)
  call('ZREM', expiry, seq)
  call('HSET', states, seq, state)
  call('ZADD', claimed, until_text, seq)
  doomed[#doomed + 1], told[#told + 1] = seq, state
end

if ARGV[6] == '1' then
  local over = call('ZRANGEBYSCORE', expiry, '-inf', now_text, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #over, 2 do
    local seq, expires = over[i], over[i + 1]
    local state = call('HGET', states, seq)
    local due = call('ZSCORE', ready, seq) or expires
    doom(seq, state and read(state) or never_claimed(due, expires))
  end
  if most > 0 then
    -- A window over the suspects that moves on with every sweep.
    local from = tonumber(call('HGET', meta, 'window') or 0)
    local some = call('ZRANGE', suspects, from, from + SLICE - 1)
    for i, state in ipairs(#some > 0 and call('HMGET', states, unpack(some)) or {}) do
      local row = read(state)
      if row.attempts - row.spared >= most and #doomed < limit then doom(some[i], row) end
    end
    if #some == SLICE then
      call('HSET', meta, 'window', text(from + SLICE - #doomed))
    elseif from > 0 then
      call('HDEL', meta, 'window')
    end
  end
end

local waiting = call('ZCOUNT', suspects, '-inf', now_text) > 0 and 1 or 0
local found = {#lost, waiting, misdated, text(ahead), now_text}
if #doomed == 0 then return found end
local packed = call('HMGET', bodies, unpack(doomed))
if not all_there(doomed, packed) then return found end -- look again later
for _, part in ipairs({doomed, packed, told, stories_of(doomed)}) do found[#found + 1] = part end
return found
