-- ARGV: now, again ('1'), what is kept of the completed and of the failed whose options do
--       not say (JSON, as removeOnComplete), then groups of the same token and fate:
--         token, fate, how many, and for each of them: id, what it returned (JSON), its story
--       or, to hand them back:
--         token, 'release', how many, and for each of them: id, delay, spared (0 or 1),
--         still a suspect (0 or 1), whether there is a story (0 or 1), the story,
--         the data with its attempts counted, what it was before ('': it stays as it is)
-- Answers 1 for each that was theirs to give. Asked again, because the first answer
-- got lost, what is as they wanted it counts as theirs.
local again, answers, settled = ARGV[2] == '1', {}, {}
local FAILED = {
  buried = 'dead-lettered: its letter is in the office of deadletter',
  failed = 'given up without a dead letter',
}

local STACKS = 20 -- that are kept of a job

-- The last failure of a story, as those who look at BullMQ expect to see it.
local function show(key, story)
  local cut = string.find(string.reverse(story), '\n', 1, true)
  local readable, last = pcall(cjson.decode, cut and string.sub(story, 1 - cut) or story)
  if not readable or type(last) ~= 'table' then return end
  local kind, words = tostring(last.error_type or ''), tostring(last.text or '')
  local reason = kind .. (kind ~= '' and ': ' or '') .. words
  call('HSET', key, 'failedReason', reason)
  if type(last.stack) == 'string' and last.stack ~= '' then
    local known, stacks = pcall(cjson.decode, call('HGET', key, 'stacktrace') or '[]')
    if not known or type(stacks) ~= 'table' then stacks = {} end
    stacks[#stacks + 1] = reason .. '\n' .. last.stack
    while #stacks > STACKS do table.remove(stacks, 1) end
    call('HSET', key, 'stacktrace', cjson.encode(stacks))
  end
  return reason
end

-- It has ended: with what its handler returned, or with the failure it ended by.
local function end_it(id, fate, result, story)
  local reason = FAILED[fate]
  if reason and story ~= '' then reason = show(base .. id, story) or reason end
  finish(id, not FAILED[fate], reason or (result ~= '' and result or 'null'), FAILED[fate] and fate, story)
end

local function hand_back(id, place)
  local key, job = base .. id, read(id)
  local wanted, spared = now + ARGV[place + 1], ARGV[place + 2] == '1'
  if not spared and job.held ~= DOOMED then charge(id) end
  if ARGV[place + 4] == '1' then
    call('HSET', key, 'dlq:story', ARGV[place + 5])
    show(key, ARGV[place + 5])
  end
  if ARGV[place + 7] ~= '' then
    call('HSET', key, 'data', ARGV[place + 6], 'dlq:counted', ARGV[place + 7])
  end
  if job.expires then call('ZADD', expiry, job.expires, id) end
  local due = due_at(wanted, job.expires)
  local still = job.held == ALONE and ARGV[place + 3] == '1'
  if still then suspected(id, job, due) else call('HDEL', key, 'dlq:suspect') end
  if due > ms then
    call('HSET', key, 'delay', text(due - ms))
    hold_back(id, due)
    wake_later()
  else
    line_up(id, not still and job.priority)
    tell('waiting', id, 'prev', 'active')
    wake()
  end
end

local function is_as_wanted(id, token, fate)
  local key = base .. id
  local last, finished = unpack(call('HMGET', key, 'dlq:token', 'finishedOn'))
  if fate == 'release' then
    return last == token and not finished and call('EXISTS', key .. ':lock') == 0
  end
  return call('EXISTS', key) == 0 or finished and last == token
end

-- First what takes away: that is allowed even when memory is full, and then what
-- follows is too.
local place, ended = 5, 0
while place <= #ARGV do
  local token, fate, count = ARGV[place], ARGV[place + 1], tonumber(ARGV[place + 2])
  place = place + 3
  for _ = 1, count do
    local id, ours = ARGV[place], false
    if not settled[id] and holds(id, token) then
      ours, settled[id] = let_go(id) and call('EXISTS', base .. id) == 1, true
      if ours and fate == 'release' then
        hand_back(id, place)
      elseif ours then
        end_it(id, fate, ARGV[place + 1], ARGV[place + 2])
        ended = ended + 1
      end
    elseif again and not settled[id] then
      ours = is_as_wanted(id, token, fate)
    end
    answers[#answers + 1] = ours and 1 or 0
    place = place + (fate == 'release' and 8 or 3)
  end
end
if ended > 0 then
  if call('EXISTS', wait, prioritized, active) == 0 then
    call('XADD', base .. 'events', 'MAXLEN', '~', events_kept, '*', 'event', 'drained')
  elseif most_active and call('EXISTS', wait, prioritized) > 0 then
    wake() -- there is room for another one
  end
end
return answers
