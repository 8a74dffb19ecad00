-- The key that signs what travels where others can write, see core/signing.py.
CREATE TABLE deadletter.signing_key (
    one integer PRIMARY KEY CHECK (one = 1),
    key bytea NOT NULL
);
