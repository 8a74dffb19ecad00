-- When each version of an application was first seen at a mailbox, see core/query/versions.py.
CREATE TABLE versions (
    source     TEXT NOT NULL,
    version    TEXT NOT NULL,
    first_seen INTEGER NOT NULL,
    PRIMARY KEY (source, version)
) WITHOUT ROWID;
INSERT INTO versions (source, version, first_seen)
SELECT source, version, min(dead_at) FROM letters WHERE version <> '' GROUP BY 1, 2;
