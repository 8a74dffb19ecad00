-- What time it is, for leases and due times: the server's, which all share. One
-- moment for a whole statement, so that an index can be searched by it.
CREATE FUNCTION deadletter.clock() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN statement_timestamp();

CREATE TABLE deadletter.mailboxes (
    id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text    COLLATE "C" NOT NULL UNIQUE,
    gone         boolean NOT NULL DEFAULT false,  -- deleted; its tally stays
    dead_queue   text    COLLATE "C",
    max_attempts integer NOT NULL DEFAULT 0,
    expire_after double precision,                -- seconds
    reference    text    NOT NULL DEFAULT ''
);

-- How many messages came ('sent') and how they left: sent = all fates + what is
-- still there. Counted in several shards, so that workers who finish at the same
-- time do not wait for each other's commit.
CREATE TABLE deadletter.tally (
    mailbox integer  NOT NULL,
    fate    text     COLLATE "C" NOT NULL,
    shard   smallint NOT NULL,
    n       bigint   NOT NULL,
    PRIMARY KEY (mailbox, fate, shard)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_scale_factor = 0);

-- Whose a message is. Never the same twice.
CREATE SEQUENCE deadletter.tokens CACHE 100;

-- Text is kept as its bytes: it may hold what no text of PostgreSQL can.
CREATE TABLE deadletter.messages (
    seq        bigint      GENERATED ALWAYS AS IDENTITY (CACHE 50) PRIMARY KEY,
    token      bigint,                        -- whose it is; NULL when nobody's
    sent_at    timestamptz NOT NULL,
    due        timestamptz NOT NULL,          -- never after expires_at
    leased     timestamptz,                   -- until when it is somebody's
    first_at   timestamptz,
    expires_at timestamptz,
    mailbox    integer     NOT NULL,
    attempts   integer     NOT NULL DEFAULT 0,
    spared     integer     NOT NULL DEFAULT 0,
    suspect    boolean     NOT NULL DEFAULT false,
    alone      boolean     NOT NULL DEFAULT false,  -- how it was claimed
    id         bytea       NOT NULL,
    extra      bytea,                         -- the rare fields; NULL when all default
    history    bytea       NOT NULL DEFAULT '',
    body       bytea       NOT NULL
) WITH (
    -- Every message is changed once or more and then deleted: there is always
    -- something to clean up, and doing it early and at full speed costs least.
    fillfactor = 80,
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0.05
);
ALTER TABLE deadletter.messages ALTER COLUMN body SET STORAGE EXTERNAL;

-- Two lanes, usual and suspect, each in the order of delivery.
CREATE INDEX messages_free ON deadletter.messages (mailbox, suspect, due, seq)
    WHERE token IS NULL;
CREATE INDEX messages_leased ON deadletter.messages (leased) WHERE token IS NOT NULL;
CREATE INDEX messages_expiring ON deadletter.messages (mailbox, expires_at)
    WHERE token IS NULL AND expires_at IS NOT NULL;

CREATE TABLE deadletter.ledger (
    id         bytea       PRIMARY KEY,       -- digest of mailbox and key
    generation bigint      NOT NULL,
    state      text        COLLATE "C" NOT NULL,
    holder     bytea       NOT NULL,          -- the message whose claim it is
    token      bigint      NOT NULL,
    due        timestamptz NOT NULL,          -- until when a claim is somebody's
    expires_at timestamptz                    -- when it may be forgotten
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX ledger_expiring ON deadletter.ledger (expires_at)
    WHERE expires_at IS NOT NULL;
