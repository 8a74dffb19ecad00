-- How carefully a replay is sent, as JSON; what was started before is not careful.
ALTER TABLE deadletter.campaigns ADD COLUMN care text;
