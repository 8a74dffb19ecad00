-- ARGV: now, token, lease, limit, max_attempts (0: none), mortal ('1')
-- Answers how many were lost, whether suspects wait, and what is doomed, claimed.
local token, limit, most = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local now_text, until_text = text(now), text(now + ARGV[3])

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
if #doomed == 0 then return {#lost, waiting} end
local packed = call('HMGET', bodies, unpack(doomed))
if not all_there(doomed, packed) then return {#lost, waiting} end -- look again later
return {#lost, waiting, doomed, packed, told, stories_of(doomed)}
