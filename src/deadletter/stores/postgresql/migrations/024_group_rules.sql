-- What people said about letters to come: where those of a group belong.
CREATE TABLE deadletter.group_rules (
    fingerprint text  PRIMARY KEY,
    rules       bytea NOT NULL                -- JSON, the latest first
);
