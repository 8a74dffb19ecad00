-- New groups of one source, error type and frame in a day, see core/group_limit.py.
CREATE TABLE group_kinds (
    overflow TEXT PRIMARY KEY,  -- the fingerprint of their overflow group
    day      INTEGER NOT NULL,
    made     INTEGER NOT NULL
) WITHOUT ROWID;
