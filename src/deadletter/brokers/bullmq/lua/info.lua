-- ARGV: now
-- Answers ready, delayed, claimed, suspects, and of the first in line its envelope and
-- when it was added.
local alone, late = 0, 0
for _, id in ipairs(call('ZRANGE', suspects, 0, 999)) do
  local job = read(id)
  if job and is_suspect(job) then
    alone = alone + 1
    if call('ZSCORE', delayed, id) then late = late + 1 end
  else
    call('ZREM', suspects, id)
  end
end
local waiting = call('LLEN', wait) + call('LLEN', base .. 'paused') + call('ZCARD', prioritized)
local due = call('ZCOUNT', delayed, '-inf', text((ms + 1) * STEP - 1))
local held_back = call('ZCARD', delayed)
local head, added = '', ''
local first = call('LRANGE', wait, -100, -1)
for i = #first, 1, -1 do
  local job = read(first[i])
  if job and not is_suspect(job) then
    head, added = job.got[2] or '', job.got[5] or ''
    break
  end
end
return {
  math.max(0, waiting - (alone - late) + due), held_back - due - late, call('LLEN', active), alone, head, added,
}
