-- KEYS: entries, over
-- ARGV: now, time to live, then for each: key, token, state
-- Answers 1 for each claim that was still theirs.
local entries, over = KEYS[1], KEYS[2]
local expires, answers = text(now + ARGV[2]), {}
for i = 3, #ARGV, 3 do
  local key, token, state = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local entry = call('HGET', entries, key)
  local generation, before, its, rest =
    string.match(entry or '', '^(%S+) (%S+) (%S+) (.*)$')
  local ours = its == token and (before == 'processing' or before == state)
  if ours then
    call('HSET', entries, key, generation .. ' ' .. state .. ' ' .. its .. ' ' .. rest)
    call('ZADD', over, expires, key)
  end
  answers[#answers + 1] = ours and 1 or 0
end
return answers
