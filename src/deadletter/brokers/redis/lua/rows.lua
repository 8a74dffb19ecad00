-- What a mailbox knows of a message that was claimed at least once.
-- Where nobody has it, its token is that of who had it last, and instead of the end of
-- a lease there is a '0' and how long it was asked to wait.
local SUSPECT, ALONE, NONE, NOBODY = 1, 2, '-', '0'

local function read(state)
  local token, till, attempts, spared, flags, first, due, expires =
    string.match(state, '^(%S+) (%d+) (%d+) (%d+) (%d) (%S+) (%S+) (%S+)$')
  return {
    token = token, till = till, attempts = tonumber(attempts), spared = tonumber(spared),
    suspect = flags % 2 == 1, alone = flags - 1 > 0,
    first = first, due = due, expires = expires,
  }
end

local function written(row)
  local flags = (row.suspect and SUSPECT or 0) + (row.alone and ALONE or 0)
  return table.concat(
    {row.token, row.till, row.attempts, row.spared, flags, row.first, row.due, row.expires}, ' ')
end

local function never_claimed(due, expires)
  return {
    token = NONE, till = NOBODY, attempts = 0, spared = 0, suspect = false, alone = false,
    first = NONE, due = due, expires = expires or NONE,
  }
end

-- What nobody has any more goes back into its lane: gathered here, and written when
-- all are known, since one command for many costs far less than many.
local back = {seqs = {}, states = {}, ready = {}, suspects = {}, expiry = {}}

local function put(list, one, two)
  local n = #list
  list[n + 1], list[n + 2] = one, two
end

local function line_up(seq, row, wait)
  row.till = NOBODY .. (wait or '')
  back.seqs[#back.seqs + 1] = seq
  put(back.states, seq, written(row))
  put(row.suspect and back.suspects or back.ready, row.due, seq)
  if row.expires ~= NONE then put(back.expiry, row.expires, seq) end
end

local function lined_up()
  if #back.seqs == 0 then return end
  call('ZREM', claimed, unpack(back.seqs))
  call('HSET', states, unpack(back.states))
  if #back.ready > 0 then
    call('ZADD', ready, unpack(back.ready))
    ring(bell)
  end
  if #back.suspects > 0 then
    call('ZADD', suspects, unpack(back.suspects))
    ring(bell_alone)
  end
  if #back.expiry > 0 then call('ZADD', expiry, unpack(back.expiry)) end
  back = {seqs = {}, states = {}, ready = {}, suspects = {}, expiry = {}}
end

local function states_of(seqs)
  if #seqs == 0 then return {} end
  return call('HMGET', states, unpack(seqs))
end

-- Whether it is (or was last) theirs who have this token.
local function holds(state, token)
  return state and string.sub(state, 1, #token + 1) == token .. ' '
end

local function is_free(row)
  return string.sub(row.till, 1, 1) == NOBODY
end

-- The longest lease that was ever asked for: no claim ends later than that from now.
local function note_lease(known, lease)
  if tonumber(lease) > tonumber(known or 0) then call('HSET', meta, 'lease', lease) end
end

-- Until when it is theirs: digits, as many as those of any time up to 2286, so that
-- text compares like numbers.
local function lease_of(state, token)
  return string.sub(state, #token + 2, #token + 17)
end

local function stories_of(seqs)
  if #seqs == 0 or call('EXISTS', stories) == 0 then return {} end
  return call('HMGET', stories, unpack(seqs))
end

-- A message whose body somebody took away from outside cannot be handed out: it is
-- forgotten, and counted. Says whether there was none of them.
local function all_there(seqs, found)
  local whole = true
  for i = 1, #seqs do
    if not found[i] then
      whole = false
      for _, lane in ipairs({ready, suspects, claimed, expiry}) do
        call('ZREM', lane, seqs[i])
      end
      call('HDEL', states, seqs[i])
      call('HDEL', stories, seqs[i])
      call('HINCRBY', meta, 'purged', 1)
    end
  end
  return whole
end
