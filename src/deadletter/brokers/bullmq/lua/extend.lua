-- ARGV: now, lease, then for each: id, token
-- Answers 1 for each that is still theirs.
local lease, answers = tonumber(ARGV[2]), {}
for i = 3, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local ours = holds(id, token)
  if ours then
    call('SREM', base .. 'stalled', id) -- first what takes away, see settle
    call('SET', base .. id .. ':lock', token, 'PX', math.max(1, math.ceil(lease / 1000)))
    call('HSET', base .. id, 'dlq:lease', text(lease))
    call('ZADD', claimed, text(now + lease), id)
  end
  answers[#answers + 1] = ours and 1 or 0
end
return answers
