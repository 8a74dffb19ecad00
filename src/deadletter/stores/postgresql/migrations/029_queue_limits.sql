-- The limit of attempts is the queue's alone: a change applies to the items in it.
ALTER TABLE deadletter.lease_queues ADD COLUMN limit_mode text NOT NULL DEFAULT 'reached';
ALTER TABLE deadletter.items DROP COLUMN max_attempts;

-- A source is known while an item has it, and no longer.
DROP TABLE deadletter.item_origins;
