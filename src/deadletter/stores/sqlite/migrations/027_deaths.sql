-- Deaths over time, see core/deaths.py. An empty fingerprint stands for all other groups.
CREATE TABLE deaths (
    step        INTEGER NOT NULL,  -- seconds
    at          INTEGER NOT NULL,  -- where it begins, in seconds
    source      TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    version     TEXT NOT NULL,
    n           INTEGER NOT NULL,
    PRIMARY KEY (step, at, source, fingerprint, version)
) WITHOUT ROWID;
-- The last death of each letter that is there: earlier ones were not counted by time.
INSERT INTO deaths (step, at, source, fingerprint, version, n)
WITH died AS (
    SELECT dead_at / 1000000 AS dead, source, fingerprint, version,
        CASE WHEN dead_at / 1000000 >= strftime('%s', 'now') - 176400 THEN 300
             WHEN dead_at / 1000000 >= strftime('%s', 'now') - 2764800 THEN 3600
             ELSE 86400 END AS step
    FROM letters WHERE dead_at >= 0
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
