-- ARGV: now, lease, then for each: seq, token
-- Answers 1 for each that is still theirs.
local seqs = {}
for i = 3, #ARGV, 2 do seqs[#seqs + 1] = ARGV[i] end
local found, now_text = states_of(seqs), text(now)
local answers, stated, leased, until_text = {}, {}, {}, text(now + ARGV[2])
for i, seq in ipairs(seqs) do
  local state, token = found[i], ARGV[2 + 2 * i]
  local ours = holds(state, token) and lease_of(state, token) > now_text
  if ours then
    put(stated, seq, token .. ' ' .. until_text .. string.sub(state, #token + 18))
    put(leased, until_text, seq)
  end
  answers[i] = ours and 1 or 0
end
if #leased > 0 then
  note_lease(call('HGET', meta, 'lease'), ARGV[2])
  call('HSET', states, unpack(stated))
  call('ZADD', claimed, unpack(leased))
end
return answers
