-- When each version of an application was first seen at a mailbox, see core/query/versions.py.
CREATE TABLE deadletter.versions (
    source     text NOT NULL,
    version    text NOT NULL,
    first_seen timestamptz NOT NULL,
    PRIMARY KEY (source, version)
);
INSERT INTO deadletter.versions (source, version, first_seen)
SELECT source, version, min(dead_at) FROM deadletter.letters
WHERE version <> '' GROUP BY 1, 2;
