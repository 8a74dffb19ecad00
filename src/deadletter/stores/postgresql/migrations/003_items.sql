-- The queue server: items in lease queues.

CREATE TABLE deadletter.lease_queues (
    id             integer          GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text             COLLATE "C" NOT NULL UNIQUE,
    dead_queue     text             COLLATE "C",
    lease_timeout  double precision NOT NULL,     -- seconds
    expire_timeout double precision NOT NULL,     -- seconds
    max_attempts   integer          NOT NULL,
    partitions     integer          NOT NULL,
    reference      text             NOT NULL,
    namespace      text             COLLATE "C" NOT NULL,
    created_at     timestamptz      NOT NULL,
    updated_at     timestamptz      NOT NULL
);
CREATE INDEX lease_queues_dead ON deadletter.lease_queues (dead_queue)
    WHERE dead_queue IS NOT NULL;

-- How many items nobody has: counted as they change, for those who add some. In
-- several shards, so that those who change them at the same time do not wait for
-- each other's commit.
CREATE TABLE deadletter.lease_loads (
    queue     integer  NOT NULL,
    partition integer  NOT NULL,
    shard     smallint NOT NULL,
    load      bigint   NOT NULL,
    PRIMARY KEY (queue, partition, shard)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_scale_factor = 0);

-- Numbers of items. Each database begins somewhere else, so that the ids made of
-- them are nobody else's.
CREATE SEQUENCE deadletter.item_numbers;
SELECT setval('deadletter.item_numbers', 1 + (random() * (1::bigint << 61))::bigint);

CREATE TABLE deadletter.items (
    seq          bigint      PRIMARY KEY,         -- the order in its partition
    due          timestamptz,                     -- when something becomes of it by
                                                  -- itself: a lease or its life ends,
                                                  -- or it is time
    expires      timestamptz,
    enqueue_at   timestamptz,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    queue        integer     NOT NULL,
    partition    integer     NOT NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    max_attempts integer     NOT NULL,
    state        smallint    NOT NULL,            -- 0 waiting, 1 leased, 2 scheduled
    source_id    text        COLLATE "C",         -- of a dead item: its id in its source
    labels       bytea,                           -- reference, encoding, kind
    payload      bytea       NOT NULL
) WITH (
    -- As with messages: changed once or more, then deleted.
    fillfactor = 80,
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0.05
);
ALTER TABLE deadletter.items ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX items_order ON deadletter.items (queue, partition, state, seq);
CREATE INDEX items_due ON deadletter.items (due, seq) WHERE due IS NOT NULL;

-- What dead queues have had, also after it was consumed.
CREATE TABLE deadletter.item_origins (
    queue            integer NOT NULL,
    source_id        text    COLLATE "C" NOT NULL,
    source_queue     integer NOT NULL,            -- 0: imported, its source is not known
    source_partition integer NOT NULL,
    PRIMARY KEY (queue, source_id, source_queue, source_partition)
);
