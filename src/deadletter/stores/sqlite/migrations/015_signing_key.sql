-- The key that signs what travels where others can write, see core/signing.py.
CREATE TABLE signing_key (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    key BLOB NOT NULL
);
