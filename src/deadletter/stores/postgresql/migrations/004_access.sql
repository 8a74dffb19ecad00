-- Who may come in. Of tokens and sessions only hashes are kept.

CREATE TABLE deadletter.access_tokens (
    id           text        COLLATE "C" PRIMARY KEY,
    hash         text        COLLATE "C" NOT NULL UNIQUE,
    name         text        COLLATE "C" NOT NULL,
    role         text        COLLATE "C" NOT NULL,
    sources      text[]      NOT NULL,        -- may see only these, if any
    created_at   timestamptz NOT NULL,
    created_by   text        NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz                  -- to the hour
);

CREATE TABLE deadletter.access_sessions (
    hash       text        COLLATE "C" PRIMARY KEY,
    name       text        COLLATE "C" NOT NULL,
    role       text        COLLATE "C" NOT NULL,
    sources    text[]      NOT NULL,
    token_id   text        COLLATE "C" NOT NULL
        REFERENCES deadletter.access_tokens (id) ON DELETE CASCADE,
    csrf       text        NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX access_sessions_by_token ON deadletter.access_sessions (token_id);
CREATE INDEX access_sessions_by_end ON deadletter.access_sessions (expires_at);

-- What was answered to requests with an idempotency key.
CREATE TABLE deadletter.access_answers (
    key          text        COLLATE "C" PRIMARY KEY,
    request      text        NOT NULL,        -- a hash of what was asked
    status       integer,                     -- NULL: still being worked on
    body         bytea       NOT NULL,
    content_type text        NOT NULL,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX access_answers_by_end ON deadletter.access_answers (expires_at);
