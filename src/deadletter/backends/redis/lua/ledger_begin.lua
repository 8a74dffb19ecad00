-- KEYS: entries (key -> generation state token due holder), over (expires_at -> key)
-- ARGV: now, lease, then for each: key, generation, token, holder
-- Answers state and token of each, when all are done: a key asked for twice belongs
-- to one of them.
local entries, over = KEYS[1], KEYS[2]
local due = text(now + ARGV[2])

local function open_to(entry, generation, holder)
  local its, state, _, till, held =
    string.match(entry, '^(%S+) (%S+) (%S+) (%S+) (.*)$')
  its = tonumber(its)
  if generation ~= its then return generation > its end
  if state == 'failed' or state == 'dead_lettered' then return true end
  -- The same message, delivered again: its earlier worker is fenced.
  local same = holder ~= '' and holder == held
  return state == 'processing' and (tonumber(till) <= now or same)
end

for i = 3, #ARGV, 4 do
  local key, generation, token, holder = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local entry = call('HGET', entries, key)
  if not entry or open_to(entry, tonumber(generation), holder) then
    call('HSET', entries, key,
      generation .. ' processing ' .. token .. ' ' .. due .. ' ' .. holder)
    call('ZREM', over, key)
  end
end
local answers = {}
for i = 3, #ARGV, 4 do
  local entry = call('HGET', entries, ARGV[i])
  local state, token = string.match(entry, '^%S+ (%S+) (%S+) ')
  answers[#answers + 1] = state
  answers[#answers + 1] = token
end
return answers
