-- KEYS: entries (key -> generation state token due holder), over (expires_at -> key)
-- ARGV: now, lease, then for each: key, generation, token, holder, digest
-- Behind the holder stand a zero byte and the digests of the bodies it was claimed with:
-- 32 hex digits for each of the last four generations, none when they are not known.
-- Answers state, token and digests of each, when all are done: a key asked for twice
-- belongs to one of them.
local entries, over = KEYS[1], KEYS[2]
local due = text(now + ARGV[2])

local function told_apart(rest)
  local holder, digests = string.match(rest, '^(.*)%z(%x*)$')
  if holder and #digests % 32 == 0 then return holder, digests end
  return rest, '' -- from before digests were kept
end

local function open_to(entry, generation, holder, digest)
  local its, state, _, till, rest =
    string.match(entry, '^(%S+) (%S+) (%S+) (%S+) (.*)$')
  its = tonumber(its)
  if generation ~= its then return generation > its end
  if state == 'failed' or state == 'dead_lettered' then return true end
  -- The same message, delivered again: its earlier worker is fenced.
  local held, known = told_apart(rest)
  local same = holder ~= '' and holder == held
    and (known == '' or digest == '' or string.sub(known, -32) == digest)
  return state == 'processing' and (tonumber(till) <= now or same)
end

local function digests_of(entry, generation, digest)
  if digest == '' or not entry then return digest end
  local its, rest = string.match(entry, '^(%S+) %S+ %S+ %S+ (.*)$')
  local _, known = told_apart(rest)
  if tonumber(its) == generation then return string.sub(known, 1, -33) .. digest end
  if known == '' then return '' end
  return string.sub(known .. digest, -128)
end

for i = 3, #ARGV, 5 do
  local key, generation, token, holder = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local entry = call('HGET', entries, key)
  if not entry or open_to(entry, tonumber(generation), holder, ARGV[i + 4]) then
    call('HSET', entries, key,
      generation .. ' processing ' .. token .. ' ' .. due .. ' ' .. holder
      .. '\0' .. digests_of(entry, tonumber(generation), ARGV[i + 4]))
    call('ZREM', over, key)
  end
end
local answers = {}
for i = 3, #ARGV, 5 do
  local entry = call('HGET', entries, ARGV[i])
  local state, token, rest = string.match(entry, '^%S+ (%S+) (%S+) %S+ (.*)$')
  local _, digests = told_apart(rest)
  answers[#answers + 1] = state
  answers[#answers + 1] = token
  answers[#answers + 1] = digests
end
return answers
