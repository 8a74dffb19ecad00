-- Deaths over time, see core/deaths.py. An empty fingerprint stands for all other groups.
CREATE TABLE deadletter.deaths (
    step        integer NOT NULL,  -- seconds
    at          bigint NOT NULL,   -- where it begins, in seconds since 1970
    source      text NOT NULL,
    fingerprint text NOT NULL,
    version     text NOT NULL,
    n           bigint NOT NULL,
    PRIMARY KEY (step, at, source, fingerprint, version)
) WITH (fillfactor = 70);
-- The last death of each letter that is there: earlier ones were not counted by time.
INSERT INTO deadletter.deaths (step, at, source, fingerprint, version, n)
WITH died AS (
    SELECT floor(extract(epoch FROM dead_at))::bigint AS dead, source, fingerprint, version,
        CASE WHEN dead_at >= now() - interval '49 hours' THEN 300
             WHEN dead_at >= now() - interval '32 days' THEN 3600
             ELSE 86400 END AS step
    FROM deadletter.letters WHERE dead_at >= 'epoch'
), counted AS (
    SELECT step, dead - dead % step AS at, source, fingerprint, version, count(*) AS n
    FROM died GROUP BY 1, 2, 3, 4, 5
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY step, at ORDER BY n DESC) <= 24 AS named
    FROM counted
)
SELECT step, at, source, CASE WHEN named THEN fingerprint ELSE '' END,
    CASE WHEN named THEN version ELSE '' END, sum(n)
FROM ranked GROUP BY 1, 2, 3, 4, 5;
