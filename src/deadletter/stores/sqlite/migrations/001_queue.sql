-- Times are integer microseconds since 1970, UTC.

CREATE TABLE mailboxes (
    id           INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL UNIQUE,
    gone         INTEGER NOT NULL DEFAULT 0,  -- deleted; its tally stays
    dead_queue   TEXT,
    max_attempts INTEGER NOT NULL DEFAULT 0,
    expire_after REAL,
    reference    TEXT    NOT NULL DEFAULT '',
    sent         INTEGER NOT NULL DEFAULT 0
);

-- How messages left: sent = all of these + what is still there.
CREATE TABLE tally (
    mailbox INTEGER NOT NULL,
    fate    TEXT    NOT NULL,
    n       INTEGER NOT NULL,
    PRIMARY KEY (mailbox, fate)
) WITHOUT ROWID;

CREATE TABLE messages (
    seq        INTEGER PRIMARY KEY,
    mailbox    INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    body       BLOB    NOT NULL,
    extra      BLOB,                          -- the rare fields; NULL when all default
    sent_at    INTEGER NOT NULL,
    expires_at INTEGER,
    due        INTEGER NOT NULL,              -- never after expires_at
    token      INTEGER,                       -- whose it is; NULL when nobody's
    leased     INTEGER,                       -- until when
    attempts   INTEGER NOT NULL DEFAULT 0,
    spared     INTEGER NOT NULL DEFAULT 0,
    suspect    INTEGER NOT NULL DEFAULT 0,
    alone      INTEGER NOT NULL DEFAULT 0,    -- how it was claimed
    first_at   INTEGER,
    history    TEXT    NOT NULL DEFAULT ''
);

-- Two lanes, usual and suspect, each in the order of delivery. With `token` in it
-- the index answers alone; SQLite would look at every row to see it is NULL.
CREATE INDEX messages_free ON messages (mailbox, suspect, token, due)
    WHERE token IS NULL;
CREATE INDEX messages_leased ON messages (leased, token)
    WHERE token IS NOT NULL;
CREATE INDEX messages_expiring ON messages (mailbox, expires_at)
    WHERE token IS NULL AND expires_at IS NOT NULL;

CREATE TABLE ledger (
    mailbox    TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    holder     TEXT    NOT NULL,              -- the message whose claim it is
    token      INTEGER NOT NULL,
    due        INTEGER NOT NULL,              -- until when a claim is somebody's
    expires_at INTEGER,                       -- when it may be forgotten
    PRIMARY KEY (mailbox, key)
) WITHOUT ROWID;

CREATE INDEX ledger_expiring ON ledger (expires_at) WHERE expires_at IS NOT NULL;
