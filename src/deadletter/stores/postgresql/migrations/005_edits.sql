-- What died, of letters whose message was edited since: copied as it was stored.
CREATE TABLE deadletter.letter_originals (
    letter bigint PRIMARY KEY,                -- letters.seq
    digest bytea  NOT NULL,                   -- of the body
    rest   bytea  NOT NULL,
    body   bytea  NOT NULL
);
