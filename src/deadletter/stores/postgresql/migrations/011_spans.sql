-- How long the current wait or lease of a message was asked to last: the delay while
-- nobody has it, the lease while somebody does. What would last longer was written
-- while the clock was ahead, and the sweep shortens it.
ALTER TABLE deadletter.messages ADD COLUMN span interval NOT NULL DEFAULT '0';
UPDATE deadletter.messages
SET span = greatest(coalesce(leased, due) - sent_at, interval '0')
WHERE token IS NOT NULL OR due > sent_at;
