-- How long the current wait or lease of a message was asked to last, in microseconds:
-- the delay while nobody has it, the lease while somebody does. What would last longer
-- was written by a clock that has stepped back since, and the sweep shortens it.
ALTER TABLE messages ADD COLUMN span INTEGER NOT NULL DEFAULT 0;
UPDATE messages SET span = max(0, coalesce(leased, due) - sent_at)
WHERE token IS NOT NULL OR due > sent_at;
