-- Who may come in. Of tokens and sessions only hashes are kept.

CREATE TABLE access_tokens (
    id           TEXT    NOT NULL PRIMARY KEY,
    hash         TEXT    NOT NULL UNIQUE,
    name         TEXT    NOT NULL,
    role         TEXT    NOT NULL,
    sources      TEXT    NOT NULL,            -- JSON; may see only these, if any
    created_at   INTEGER NOT NULL,
    created_by   TEXT    NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER                      -- to the hour
) WITHOUT ROWID;

CREATE TABLE access_sessions (
    hash       TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    sources    TEXT    NOT NULL,
    token_id   TEXT    NOT NULL,              -- gone with it
    csrf       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX access_sessions_by_token ON access_sessions (token_id);
CREATE INDEX access_sessions_by_end ON access_sessions (expires_at);

-- What was answered to requests with an idempotency key.
CREATE TABLE access_answers (
    key          TEXT    NOT NULL PRIMARY KEY,
    request      TEXT    NOT NULL,            -- a hash of what was asked
    status       INTEGER,                     -- NULL: still being worked on
    body         BLOB    NOT NULL,
    content_type TEXT    NOT NULL,
    expires_at   INTEGER NOT NULL
);
CREATE INDEX access_answers_by_end ON access_answers (expires_at);
