-- The queue server: items in lease queues. Times are as in 001.

CREATE TABLE lease_queues (
    id             INTEGER PRIMARY KEY,
    name           TEXT    NOT NULL UNIQUE,
    dead_queue     TEXT,
    lease_timeout  REAL    NOT NULL,           -- seconds
    expire_timeout REAL    NOT NULL,           -- seconds
    max_attempts   INTEGER NOT NULL,
    partitions     INTEGER NOT NULL,
    reference      TEXT    NOT NULL,
    namespace      TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
);
CREATE INDEX lease_queues_dead ON lease_queues (dead_queue)
    WHERE dead_queue IS NOT NULL;

-- How many items nobody has: counted as they change, for those who add some.
CREATE TABLE lease_partitions (
    queue     INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    load      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, partition)
) WITHOUT ROWID;

-- The latest number given to an item. Each file begins somewhere else, so that the
-- ids made of these numbers are nobody else's.
CREATE TABLE item_numbers (last INTEGER NOT NULL);
INSERT INTO item_numbers VALUES (random() & 0x1fffffffffffffff);

CREATE TABLE items (
    seq          INTEGER PRIMARY KEY,          -- the order in its partition
    queue        INTEGER NOT NULL,
    partition    INTEGER NOT NULL,
    state        INTEGER NOT NULL,             -- 0 waiting, 1 leased, 2 scheduled
    due          INTEGER,                      -- when something becomes of it by itself:
                                               -- a lease or its life ends, or it is time
    attempts     INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    expires      INTEGER,
    enqueue_at   INTEGER,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    source_id    TEXT,                         -- of a dead item: its id in its source
    labels       BLOB,                         -- reference, encoding, kind; NULL if none
    payload      BLOB    NOT NULL
);
CREATE INDEX items_order ON items (queue, partition, state);
CREATE INDEX items_due ON items (due) WHERE due IS NOT NULL;

-- What dead queues have had, also after it was consumed.
CREATE TABLE item_origins (
    queue            INTEGER NOT NULL,
    source_id        TEXT    NOT NULL,
    source_queue     INTEGER NOT NULL,         -- 0: imported, its source is not known
    source_partition INTEGER NOT NULL,
    PRIMARY KEY (queue, source_id, source_queue, source_partition)
) WITHOUT ROWID;
