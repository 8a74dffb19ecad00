-- Sums by identity may be made with a key, see core/seals.py; beside each is the id of
-- its key. Those that are there have none. Campaigns get sums of their letters by what
-- became of them; what is there is where they begin.
ALTER TABLE deadletter.mailboxes
    ADD COLUMN marks_key bytea NOT NULL DEFAULT '\x00000000';
ALTER TABLE deadletter.office
    ADD COLUMN marks_key bytea NOT NULL DEFAULT '\x00000000';
ALTER TABLE deadletter.letter_contents
    ADD COLUMN mark_key bytea NOT NULL DEFAULT '\x00000000';
ALTER TABLE deadletter.campaign_outcomes
    ADD COLUMN marks bigint NOT NULL DEFAULT 0,
    ADD COLUMN marks_key bytea NOT NULL DEFAULT '\x00000000';

CREATE FUNCTION pg_temp.text_mark(name text) RETURNS numeric LANGUAGE sql
    RETURN ('x' || encode(substr(sha256(convert_to(name, 'UTF8')), 1, 8), 'hex'))
        ::bit(64)::bigint & 4611686018427387903;
WITH items AS (
    SELECT campaign, letter, outcome FROM deadletter.campaign_items
    UNION ALL
    SELECT campaign, letter, 'waiting' FROM deadletter.campaign_waiting
    UNION ALL
    SELECT p.campaign, w.letter, 'planned'
    FROM deadletter.campaign_plans p JOIN deadletter.campaigns g ON g.seq = p.campaign
    CROSS JOIN LATERAL unnest(p.letters) WITH ORDINALITY AS w (letter, place)
    WHERE p.first + w.place - 1 >= g.taken
), sums AS (
    SELECT campaign, outcome, (sum(pg_temp.text_mark(
        campaign || '/' || letter || '/' || outcome)) % 4611686018427387904)::bigint AS marks
    FROM items GROUP BY campaign, outcome
)
UPDATE deadletter.campaign_outcomes t SET marks = s.marks
FROM sums s WHERE t.campaign = s.campaign AND t.outcome = s.outcome;
DROP FUNCTION pg_temp.text_mark;
