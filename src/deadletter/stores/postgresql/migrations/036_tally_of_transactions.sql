-- Messages that are sent within a transaction of the application are counted in a row of
-- that transaction, whose shard is its id with a minus. Sweeps add these rows to the others.
ALTER TABLE deadletter.tally ALTER COLUMN shard TYPE bigint;
