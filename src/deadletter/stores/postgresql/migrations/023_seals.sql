-- Seals on letters, and sums by identity, see core/seals.py. Letters
-- that are there already have no seals until a chore seals them as they are, and
-- messages no marks; what is there is where the sums begin.
ALTER TABLE deadletter.letter_contents
    ADD COLUMN seal bytea, ADD COLUMN story_seal bytea,
    ADD COLUMN mark bigint;                   -- of the message, for copies of it
ALTER TABLE deadletter.letter_originals ADD COLUMN seal bytea;
ALTER TABLE deadletter.messages ADD COLUMN mark bigint;

-- The weights are those of core/seals.py.
ALTER TABLE deadletter.tally ADD COLUMN marks bigint NOT NULL DEFAULT 0;
UPDATE deadletter.tally SET marks = (n::numeric * CASE fate
        WHEN 'sent' THEN 1566709077
        WHEN 'handled' THEN 866242639
        WHEN 'ignored' THEN 1802117287
        WHEN 'continued' THEN 1196503889
        WHEN 'duplicate' THEN 153337997
        WHEN 'buried' THEN 148169003
        WHEN 'failed' THEN 1329975739
        WHEN 'purged' THEN 714384999
    END % 4611686018427387904)::bigint;

ALTER TABLE deadletter.office
    ADD COLUMN letter_marks bigint NOT NULL DEFAULT 0,
    ADD COLUMN deaths bigint NOT NULL DEFAULT 0,
    ADD COLUMN death_marks bigint NOT NULL DEFAULT 0;
CREATE FUNCTION pg_temp.text_mark(name text) RETURNS numeric LANGUAGE sql
    RETURN ('x' || encode(substr(sha256(convert_to(name, 'UTF8')), 1, 8), 'hex'))
        ::bit(64)::bigint & 4611686018427387903;
UPDATE deadletter.office SET
    letter_marks = (SELECT (coalesce(sum(pg_temp.text_mark(id)), 0)
        % 4611686018427387904)::bigint FROM deadletter.letters),
    deaths = (SELECT coalesce(sum(total), 0)::bigint FROM deadletter.groups),
    death_marks = (SELECT (coalesce(sum(pg_temp.text_mark(fingerprint) * total), 0)
        % 4611686018427387904)::bigint FROM deadletter.groups);
DROP FUNCTION pg_temp.text_mark;
