-- Presence: the last sign of each worker process, see core/presence.py.
CREATE TABLE workers (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    sign       BLOB    NOT NULL
) WITHOUT ROWID;
