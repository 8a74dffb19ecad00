ALTER TABLE transactions ADD COLUMN retry_on_failure BOOLEAN DEFAULT FALSE;
