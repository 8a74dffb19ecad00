-- Whom a token stands for: names come again, principals do not.
ALTER TABLE access_tokens ADD COLUMN principal TEXT NOT NULL DEFAULT '';
UPDATE access_tokens SET principal = lower(hex(randomblob(16)));
ALTER TABLE access_sessions ADD COLUMN principal TEXT NOT NULL DEFAULT '';
UPDATE access_sessions SET principal = coalesce(
    (SELECT t.principal FROM access_tokens t WHERE t.id = access_sessions.token_id), '');

-- Who planned a replay, and as whom it runs; of older ones nobody can tell.
ALTER TABLE campaigns ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE campaigns ADD COLUMN runs_as TEXT NOT NULL DEFAULT '';
