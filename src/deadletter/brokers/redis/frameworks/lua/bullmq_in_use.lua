-- Tells whether another job has an id. KEYS: what all keys of the queue begin with.
-- ARGV: id, digest of its data as it was drained. Answers 1 if the id is in use.
-- The very job that was drained does not count, as in bullmq_put_back.lua.
local call, base, key = redis.call, KEYS[1], KEYS[1] .. ARGV[1]
if call('EXISTS', key) == 0 then return 0 end
local is_failed = call('ZSCORE', base .. 'failed', ARGV[1])
return is_failed and redis.sha1hex(call('HGET', key, 'data') or '') == ARGV[2] and 0 or 1
