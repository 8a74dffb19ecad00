-- ARGV: now, again ('1'), then groups of the same token and fate:
--         token, fate, how many, their seqs
--       or, to hand them back:
--         token, 'release', how many, and for each of them: seq, delay, spared (0 or 1),
--         still a suspect (0 or 1), whether there is a story (0 or 1), the story
-- Answers 1 for each that was theirs to give. Asked again, because the first answer
-- got lost, what is as they wanted it counts as theirs.
local again = ARGV[2] == '1'
local seqs, tokens, fates, tails = {}, {}, {}, {}
local place, last = 3, #ARGV
while place <= last do
  local token, fate, count = ARGV[place], ARGV[place + 1], tonumber(ARGV[place + 2])
  local step = fate == 'release' and 6 or 1
  place = place + 3
  for i = #seqs + 1, #seqs + count do
    seqs[i], tokens[i], fates[i], tails[i] = ARGV[place], token, fate, place
    place = place + step
  end
end

local found, now_text = states_of(seqs), text(now)
local answers, settled, forgotten, counts, told = {}, {}, {}, {}, {}
for i = 1, #seqs do
  local seq, fate, state, token = seqs[i], fates[i], found[i], tokens[i]
  local ours = holds(state, token)
  if ours and lease_of(state, token) > now_text and not settled[seq] then
    settled[seq] = true
    if fate == 'release' then
      local row, tail = read(state), tails[i]
      local due = now + ARGV[tail + 1]
      if row.expires ~= NONE then due = math.min(due, tonumber(row.expires)) end
      row.due, row.spared, row.alone = text(due), row.spared + ARGV[tail + 2], false
      row.suspect = row.suspect and ARGV[tail + 3] == '1'
      line_up(seq, row, ARGV[tail + 1]) -- it keeps its token: so we know it if we are asked again
      if ARGV[tail + 4] == '1' then put(told, seq, ARGV[tail + 5]) end
    else
      forgotten[#forgotten + 1] = seq
      counts[fate] = (counts[fate] or 0) + 1
    end
  elseif not again or settled[seq] then
    ours = false
  elseif fate == 'release' then
    ours = ours and is_free(read(state))
  else
    ours = not state and call('HEXISTS', bodies, seq) == 0
  end
  answers[i] = ours and 1 or 0
end

-- First what takes away: that is allowed even when memory is full, and then what
-- follows is too.
if #forgotten > 0 then
  call('ZREM', claimed, unpack(forgotten))
  call('HDEL', bodies, unpack(forgotten))
  call('HDEL', states, unpack(forgotten))
  if call('EXISTS', stories) == 1 then call('HDEL', stories, unpack(forgotten)) end
  for fate, number in pairs(counts) do call('HINCRBY', meta, fate, number) end
end
lined_up()
if #told > 0 then call('HSET', stories, unpack(told)) end
return answers
