-- Removes failed jobs. KEYS: what all keys of the queue begin with. ARGV: ids.
-- A job that somebody has retried meanwhile stays. So does what a parent knows of its
-- children: they go on telling it how they ended, and it needs that when it comes back.
local call, base = redis.call, KEYS[1]
for _, id in ipairs(ARGV) do
  if call('ZREM', base .. 'failed', id) == 1 then call('DEL', base .. id, base .. id .. ':logs') end
end
