-- An item that is leased keeps its place in the index: moving it there and back took
-- longer than all else about a lease. `state` is 0 in the queue, 2 scheduled.
ALTER TABLE items ADD COLUMN held INTEGER NOT NULL DEFAULT 0;  -- 1 while it is leased
UPDATE items SET held = 1, state = 0 WHERE state = 1;

-- Nothing before this number waits: those who look for something begin there.
ALTER TABLE lease_partitions ADD COLUMN head INTEGER NOT NULL DEFAULT 0;
