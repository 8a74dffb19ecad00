-- Presence: the last sign of each worker process, see core/presence.py. Nothing depends on it.
CREATE TABLE deadletter.workers (
    id         text        NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    sign       bytea       NOT NULL
) WITH (fillfactor = 50);
