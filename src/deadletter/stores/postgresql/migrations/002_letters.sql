-- Text that PostgreSQL cannot hold as it is (NUL, lone surrogates) is escaped, see
-- text.py. It is compared byte by byte, whatever the language of the database.
-- Indexes hold only the beginning of text that may be of any length.

-- One row: how many letters there ever were, and where the audit ends.
-- kept = letters that are there + purged + expired.
CREATE TABLE deadletter.office (
    id         integer PRIMARY KEY CHECK (id = 1),
    kept       bigint  NOT NULL DEFAULT 0,
    purged     bigint  NOT NULL DEFAULT 0,
    expired    bigint  NOT NULL DEFAULT 0,
    audit_seq  bigint  NOT NULL DEFAULT 0,
    audit_hash text    NOT NULL DEFAULT ''
) WITH (fillfactor = 10);
INSERT INTO deadletter.office (id) VALUES (1);

CREATE SEQUENCE deadletter.letters_seq;

CREATE TABLE deadletter.letters (
    seq             bigint      PRIMARY KEY,  -- in the order of keeping; never reused
    first_failed_at timestamptz NOT NULL,
    dead_at         timestamptz NOT NULL,
    size            bigint      NOT NULL,
    attempts        bigint      NOT NULL,
    generation      bigint      NOT NULL,     -- the one attempts were counted for last
    spent           bigint      NOT NULL,     -- attempts counted for it
    conflict        boolean     NOT NULL,
    id              text        COLLATE "C" NOT NULL,
    source          text        COLLATE "C" NOT NULL,
    message_id      text        COLLATE "C" NOT NULL,
    partition       text        COLLATE "C" NOT NULL,
    key             text        COLLATE "C",
    business_key    text        COLLATE "C",
    reason          text        COLLATE "C" NOT NULL,
    reason_text     text        COLLATE "C" NOT NULL,
    trouble         text        COLLATE "C" NOT NULL,
    code            text        COLLATE "C" NOT NULL,
    error_type      text        COLLATE "C" NOT NULL,
    error_name      text        COLLATE "C" NOT NULL,  -- lower case, to be found by
    error_text      text        COLLATE "C" NOT NULL,
    fingerprint     text        COLLATE "C" NOT NULL,
    consumer        text        COLLATE "C" NOT NULL,
    version         text        COLLATE "C" NOT NULL,
    trace_id        text        COLLATE "C",
    owner           text        COLLATE "C"
);

-- Every list is ordered by (dead_at, seq).
CREATE UNIQUE INDEX letters_by_id ON deadletter.letters (id);
CREATE INDEX letters_by_death ON deadletter.letters (dead_at, seq);
CREATE INDEX letters_by_source ON deadletter.letters
    ("left"(source, 200), dead_at, seq);
CREATE INDEX letters_by_group ON deadletter.letters
    ("left"(fingerprint, 200), dead_at, seq);
CREATE INDEX letters_by_error ON deadletter.letters
    ("left"(error_name, 200), dead_at, seq);
CREATE INDEX letters_by_message ON deadletter.letters
    ("left"(message_id, 200), dead_at, seq);
CREATE INDEX letters_by_key ON deadletter.letters ("left"(key, 200), dead_at, seq)
    WHERE key IS NOT NULL;
CREATE INDEX letters_by_business_key ON deadletter.letters
    ("left"(business_key, 200), dead_at, seq) WHERE business_key IS NOT NULL;
CREATE INDEX letters_by_trace ON deadletter.letters
    ("left"(trace_id, 200), dead_at, seq) WHERE trace_id IS NOT NULL;

-- What changes often, apart from what is in many indexes. Whoever changes a letter
-- locks this row; fingerprint and dead_at are those of the letter.
CREATE TABLE deadletter.letter_marks (
    letter      bigint      PRIMARY KEY,      -- letters.seq
    dead_at     timestamptz NOT NULL,
    replays     bigint      NOT NULL,
    revision    bigint      NOT NULL,
    state       text        COLLATE "C" NOT NULL,
    fingerprint text        COLLATE "C" NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX letter_marks_by_state ON deadletter.letter_marks (state, dead_at, letter);

CREATE TABLE deadletter.letter_contents (
    letter  bigint PRIMARY KEY,               -- letters.seq
    digest  bytea  NOT NULL,                  -- of the body
    frame   bytea  NOT NULL,
    rest    bytea  NOT NULL,                  -- the message without its body, and more
    body    bytea  NOT NULL,
    history bytea  NOT NULL
);

CREATE TABLE deadletter.groups (
    fingerprint text        COLLATE "C" PRIMARY KEY,
    seq         bigint      GENERATED ALWAYS AS IDENTITY,
    first_seen  timestamptz NOT NULL,
    last_seen   timestamptz NOT NULL,
    total       bigint      NOT NULL,         -- deaths ever counted
    open        bigint      NOT NULL DEFAULT 0,  -- letters that still need somebody
    source      text        COLLATE "C" NOT NULL,
    error_type  text        NOT NULL,
    text        text        NOT NULL,         -- this to code: of the latest death
    frame       text        NOT NULL,
    trouble     text        NOT NULL,
    code        text        NOT NULL,
    status      text        COLLATE "C" NOT NULL DEFAULT 'new',
    since       timestamptz,                  -- this to version: said with the status
    owner       text,
    note        text        NOT NULL DEFAULT '',
    until       timestamptz,
    version     text        NOT NULL DEFAULT ''
) WITH (
    fillfactor = 50, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_scale_factor = 0.1
);
CREATE INDEX groups_by_time ON deadletter.groups (last_seen, seq);
CREATE INDEX groups_of_source ON deadletter.groups (source, last_seen, seq);

-- How many letters are in which state, so that nothing ever counts letters.
CREATE TABLE deadletter.group_states (
    fingerprint text   COLLATE "C" NOT NULL,
    state       text   COLLATE "C" NOT NULL,
    n           bigint NOT NULL,
    PRIMARY KEY (fingerprint, state)
) WITH (
    fillfactor = 50, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_scale_factor = 0.1
);
CREATE TABLE deadletter.source_states (
    source text   COLLATE "C" NOT NULL,
    state  text   COLLATE "C" NOT NULL,
    n      bigint NOT NULL,
    PRIMARY KEY (source, state)
) WITH (
    fillfactor = 50, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_scale_factor = 0.1
);

-- Only ever appended to. Each hash covers its row and the hash before it.
CREATE TABLE deadletter.audit (
    seq    bigint      PRIMARY KEY,
    at     timestamptz NOT NULL,
    actor  text        NOT NULL,
    action text        NOT NULL,
    target text        COLLATE "C" NOT NULL,
    reason text        NOT NULL,
    detail text        NOT NULL,
    hash   text        NOT NULL
);
CREATE INDEX audit_by_target ON deadletter.audit ("left"(target, 200), seq);

CREATE TABLE deadletter.campaigns (
    seq        integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         text        COLLATE "C" NOT NULL UNIQUE,
    query      text        NOT NULL,
    created_at timestamptz NOT NULL,
    actor      text        NOT NULL,
    reason     text        NOT NULL,
    state      text        COLLATE "C" NOT NULL,
    mailbox    text,                          -- where to, if not to where it died
    rate       double precision,
    cap        bigint      NOT NULL,
    items      integer     NOT NULL DEFAULT 0,
    taken      integer     NOT NULL DEFAULT 0,  -- items from this ordinal on are planned
    surely     integer     NOT NULL DEFAULT 0   -- and none before this one is `sending`
) WITH (fillfactor = 30);

CREATE TABLE deadletter.campaign_items (
    campaign   integer NOT NULL,              -- campaigns.seq
    ordinal    integer NOT NULL,
    letter     bigint  NOT NULL,              -- letters.seq, also after it is purged
    generation bigint  NOT NULL DEFAULT 0,
    outcome    text    COLLATE "C" NOT NULL DEFAULT 'planned',
    taken_at   timestamptz,
    sent_at    timestamptz,
    settled_at timestamptz,
    PRIMARY KEY (campaign, ordinal)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX campaign_items_of_letter
    ON deadletter.campaign_items (letter, campaign);

CREATE TABLE deadletter.campaign_outcomes (
    campaign integer NOT NULL,
    outcome  text    COLLATE "C" NOT NULL,
    n        bigint  NOT NULL,
    PRIMARY KEY (campaign, outcome)
) WITH (fillfactor = 30);
