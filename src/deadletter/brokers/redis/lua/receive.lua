-- ARGV: now, token, lease, limit, alone ('1')
-- Answers nothing if the mailbox has to be made first; when nothing is due,
-- microseconds until something is (-1: there is nothing); else the claimed.
-- The bell: who finds nothing knows when to look again; who takes some tells the
-- next one of the rest. So somebody always knows, and not all are woken at once.
local known = call('HMGET', meta, 'alive', 'lease')
if not known[1] then return false end
local token, alone = ARGV[2], ARGV[5] == '1'
local lane, its_bell = alone and suspects or ready, alone and bell_alone or bell
local now_text = text(now)
local found = call('ZRANGEBYSCORE', lane, '-inf', now_text, 'WITHSCORES', 'LIMIT', 0, ARGV[4])
if #found == 0 then
  call('DEL', its_bell)
  local head = call('ZRANGE', lane, 0, 0, 'WITHSCORES')
  return {head[2] and text(head[2] - now) or '-1'}
end

local seqs = {}
for i = 1, #found / 2 do seqs[i] = found[2 * i - 1] end
local packed = call('HMGET', bodies, unpack(seqs))
if not all_there(seqs, packed) then return {'0'} end -- look again
-- First something is taken away: that is allowed even when memory is full, and
-- what follows it then is too.
call('ZREM', lane, unpack(seqs))
note_lease(known[2], ARGV[3])

-- Where every state is that of a claimed one, none of these has any.
local old, expires = {}, {}
if call('HLEN', states) > call('ZCARD', claimed) then
  old = call('HMGET', states, unpack(seqs))
end
if call('EXISTS', expiry) == 1 then
  expires = call('ZMSCORE', expiry, unpack(seqs))
  call('ZREM', expiry, unpack(seqs))
end
local until_text = text(now + ARGV[3])
local fresh = token .. ' ' .. until_text .. ' 1 0 0 ' .. now_text .. ' '
local stated, leased, told, any = {}, {}, {}, false
for i = 1, #seqs do
  local seq, state, tell = seqs[i], nil, ''
  if old[i] then
    local row = read(old[i])
    row.token, row.till, row.alone = token, until_text, alone
    row.attempts = row.attempts + 1
    if row.first == NONE then row.first = now_text end
    state = written(row)
    tell, any = state, true
  elseif expires[i] then
    state = fresh .. found[2 * i] .. ' ' .. expires[i]
    tell, any = state, true
  else
    state = fresh .. found[2 * i] .. ' -'
  end
  local n = 2 * i
  stated[n - 1], stated[n] = seq, state
  leased[n - 1], leased[n] = until_text, seq
  told[i] = tell
end
call('HSET', states, unpack(stated))
call('ZADD', claimed, unpack(leased))
if call('EXISTS', lane) == 1 then ring(its_bell) end
return {now_text, seqs, packed, any and told or {}, any and stories_of(seqs) or {}}
