-- What people said about letters to come: where those of a group belong.
CREATE TABLE group_rules (
    fingerprint TEXT PRIMARY KEY,
    rules       TEXT NOT NULL                 -- JSON, the latest first
);
