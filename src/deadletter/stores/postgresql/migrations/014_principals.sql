-- Whom a token stands for: names come again, principals do not.
ALTER TABLE deadletter.access_tokens ADD COLUMN principal text NOT NULL DEFAULT '';
UPDATE deadletter.access_tokens
SET principal = md5(id || hash || random()::text || clock_timestamp()::text);
ALTER TABLE deadletter.access_sessions ADD COLUMN principal text NOT NULL DEFAULT '';
UPDATE deadletter.access_sessions s SET principal = t.principal
FROM deadletter.access_tokens t WHERE t.id = s.token_id;

-- Who planned a replay, and as whom it runs; of older ones nobody can tell.
ALTER TABLE deadletter.campaigns ADD COLUMN owner text NOT NULL DEFAULT '';
ALTER TABLE deadletter.campaigns ADD COLUMN runs_as text NOT NULL DEFAULT '';
