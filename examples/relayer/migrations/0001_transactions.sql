CREATE TABLE transactions (
    id TEXT PRIMARY KEY,
    type TEXT NOT NULL,
    request TEXT NOT NULL,
    status TEXT NOT NULL,
    relayer_id TEXT,
    hash TEXT,
    error_category TEXT,
    error_code TEXT,
    error_message TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
