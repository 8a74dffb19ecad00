-- Times are integer microseconds since 1970, UTC. Text that SQLite cannot hold
-- as it is (NUL, lone surrogates) is stored as a blob of its bytes.

-- One row: how many letters there ever were, and where the audit ends.
-- kept = letters that are there + purged + expired.
CREATE TABLE office (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    kept       INTEGER NOT NULL DEFAULT 0,
    purged     INTEGER NOT NULL DEFAULT 0,
    expired    INTEGER NOT NULL DEFAULT 0,
    audit_seq  INTEGER NOT NULL DEFAULT 0,
    audit_hash TEXT    NOT NULL DEFAULT ''
);
INSERT INTO office (id) VALUES (1);

CREATE TABLE letters (
    seq             INTEGER PRIMARY KEY,      -- the how-manyth ever kept; never reused
    id              TEXT    NOT NULL,
    source          TEXT    NOT NULL,
    message_id      TEXT    NOT NULL,
    state           TEXT    NOT NULL,
    partition       TEXT    NOT NULL,
    key             TEXT,
    business_key    TEXT,
    reason          TEXT    NOT NULL,
    reason_text     TEXT    NOT NULL,
    trouble         TEXT    NOT NULL,
    code            TEXT    NOT NULL,
    error_type      TEXT    NOT NULL,
    error_text      TEXT    NOT NULL,
    fingerprint     TEXT    NOT NULL,
    attempts        INTEGER NOT NULL,
    first_failed_at INTEGER NOT NULL,
    dead_at         INTEGER NOT NULL,
    consumer        TEXT    NOT NULL,
    version         TEXT    NOT NULL,
    trace_id        TEXT,
    replays         INTEGER NOT NULL,
    conflict        INTEGER NOT NULL,
    owner           TEXT,
    size            INTEGER NOT NULL,
    revision        INTEGER NOT NULL,
    error_name      TEXT    NOT NULL,         -- lower case, to be found by
    generation      INTEGER NOT NULL,         -- the one attempts were counted for last
    spent           INTEGER NOT NULL          -- attempts counted for it
);

-- Every list is ordered by (dead_at, seq), and seq ends every index by itself.
-- What stands behind seq can be judged without looking at the letter.
CREATE UNIQUE INDEX letters_by_id ON letters (id);
CREATE INDEX letters_by_death ON letters (dead_at);
CREATE INDEX letters_by_state ON letters (state, dead_at);
CREATE INDEX letters_by_source ON letters (source, dead_at, seq, error_name);
CREATE INDEX letters_by_group ON letters (fingerprint, dead_at);
CREATE INDEX letters_by_error ON letters (error_name, dead_at, seq, source);
CREATE INDEX letters_by_message ON letters (message_id, dead_at);
CREATE INDEX letters_by_key ON letters (key, dead_at) WHERE key IS NOT NULL;
CREATE INDEX letters_by_business_key ON letters (business_key, dead_at)
    WHERE business_key IS NOT NULL;
CREATE INDEX letters_by_trace ON letters (trace_id, dead_at)
    WHERE trace_id IS NOT NULL;

CREATE TABLE letter_contents (
    letter  INTEGER PRIMARY KEY,              -- letters.seq
    digest  BLOB    NOT NULL,                 -- of the body
    frame   TEXT    NOT NULL,
    rest    BLOB    NOT NULL,                 -- the message without its body, and more
    body    BLOB    NOT NULL,                 -- read by searches, so before what is not
    history TEXT    NOT NULL
);

CREATE TABLE groups (
    fingerprint TEXT    PRIMARY KEY,
    source      TEXT    NOT NULL,
    error_type  TEXT    NOT NULL,
    text        TEXT    NOT NULL,             -- this to code: of the latest death
    frame       TEXT    NOT NULL,
    trouble     TEXT    NOT NULL,
    code        TEXT    NOT NULL,
    first_seen  INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    total       INTEGER NOT NULL,             -- deaths ever counted
    open        INTEGER NOT NULL DEFAULT 0,   -- letters that still need somebody
    status      TEXT    NOT NULL DEFAULT 'new',
    since       INTEGER,                      -- this to version: said with the status
    owner       TEXT,
    note        TEXT    NOT NULL DEFAULT '',
    until       INTEGER,
    version     TEXT    NOT NULL DEFAULT ''
);
CREATE INDEX groups_by_time ON groups (last_seen);
CREATE INDEX groups_of_source ON groups (source, last_seen);
CREATE INDEX groups_open ON groups (last_seen) WHERE open > 0;

-- How many letters are in which state, so that nothing ever counts letters.
CREATE TABLE group_states (
    fingerprint TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    n           INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, state)
) WITHOUT ROWID;
CREATE TABLE source_states (
    source TEXT    NOT NULL,
    state  TEXT    NOT NULL,
    n      INTEGER NOT NULL,
    PRIMARY KEY (source, state)
) WITHOUT ROWID;

-- Only ever appended to. Each hash covers its row and the hash before it.
CREATE TABLE audit (
    seq    INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    actor  TEXT    NOT NULL,
    action TEXT    NOT NULL,
    target TEXT    NOT NULL,
    reason TEXT    NOT NULL,
    detail TEXT    NOT NULL,
    hash   TEXT    NOT NULL
);
CREATE INDEX audit_by_target ON audit (target);

CREATE TABLE campaigns (
    seq        INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    query      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    mailbox    TEXT,                          -- where to, if not to where it died
    rate       REAL,
    cap        INTEGER NOT NULL,
    items      INTEGER NOT NULL DEFAULT 0,
    taken      INTEGER NOT NULL DEFAULT 0     -- items from this ordinal on are planned
);

CREATE TABLE campaign_items (
    campaign   INTEGER NOT NULL,              -- campaigns.seq
    ordinal    INTEGER NOT NULL,
    letter     INTEGER NOT NULL,              -- letters.seq, also after it is purged
    generation INTEGER NOT NULL DEFAULT 0,
    outcome    TEXT    NOT NULL DEFAULT 'planned',
    taken_at   INTEGER,
    sent_at    INTEGER,
    settled_at INTEGER,
    PRIMARY KEY (campaign, ordinal)
) WITHOUT ROWID;
CREATE UNIQUE INDEX campaign_items_of_letter ON campaign_items (letter, campaign);
CREATE INDEX campaign_items_sending ON campaign_items (campaign, ordinal)
    WHERE outcome = 'sending';

CREATE TABLE campaign_outcomes (
    campaign INTEGER NOT NULL,
    outcome  TEXT    NOT NULL,
    n        INTEGER NOT NULL,
    PRIMARY KEY (campaign, outcome)
) WITHOUT ROWID;
