-- How carefully a replay is sent, as JSON; what was started before is not careful.
ALTER TABLE campaigns ADD COLUMN care TEXT;
