-- The limit of attempts is the queue's alone: a change applies to the items in it.
ALTER TABLE lease_queues ADD COLUMN limit_mode TEXT NOT NULL DEFAULT 'reached';
ALTER TABLE items DROP COLUMN max_attempts;

-- A source is known while an item has it, and no longer.
DROP TABLE item_origins;
