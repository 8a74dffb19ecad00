-- KEYS: entries, over
-- ARGV: now, age, cursor, limit
-- Looks at some entries and drops the claims whose lease ran out that long ago.
-- Answers where to go on ('0' at the end), and how many were dropped.
local entries, limit, dropped = KEYS[1], tonumber(ARGV[4]), 0
local looked = call('HSCAN', entries, ARGV[3], 'COUNT', 500)
local found = looked[2]
for i = 1, #found, 2 do
  local due = string.match(found[i + 1], '^%S+ processing %S+ (%S+) ')
  if due and tonumber(due) <= now - ARGV[2] and dropped < limit then
    dropped = dropped + call('HDEL', entries, found[i])
  end
end
return {looked[1], dropped}
