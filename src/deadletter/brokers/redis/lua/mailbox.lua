-- One mailbox, all of whose keys live in one cluster slot.
--   meta     hash   alive, expire_after, version, sent (the last seq given), counts,
--                   lease (the longest ever asked for), window, far, far_alone (where the
--                   next sweep goes on)
--   bodies   hash   seq -> the packed message
--   states   hash   seq -> token until attempts spared flags first_at due expires_at
--   stories  hash   seq -> history
--   ready, suspects    due -> seq    what nobody has
--   claimed            end of the lease -> seq
--   expiry             expires_at -> seq, of what nobody has
--   sends              time -> token of the last send of every producer's lane
--   bell, bell_alone   lists with at most one entry: there may be something
-- What was never claimed has no state. All seqs have 15 digits: equally due, they
-- sort in the order they were sent.
local meta, bodies, ready, expiry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local sends, bell = KEYS[5], KEYS[6] -- a sender needs no more than these
local states, stories = KEYS[7], KEYS[8]
local suspects, claimed, bell_alone = KEYS[9], KEYS[10], KEYS[11]
-- Each key is checked against the first: one that was changed on its way here would
-- make whole mailboxes look empty.
local base = string.sub(meta, 1, -5)
for i, part in ipairs({
  'meta', 'bodies', 'ready', 'expiry', 'sends', 'bell', 'states', 'stories', 'suspects',
  'claimed', 'bell-alone',
}) do
  if KEYS[i] and KEYS[i] ~= base .. part then
    return redis.error_reply('DLQCHANGED a key arrived changed: ' .. KEYS[i])
  end
end
local SLICE = 500 -- as many as are handed to one command

local function ring(which)
  if call('LLEN', which) == 0 then call('RPUSH', which, '1') end
end
