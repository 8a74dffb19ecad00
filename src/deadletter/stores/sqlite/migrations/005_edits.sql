-- What died, of letters whose message was edited since: copied as it was stored.
CREATE TABLE letter_originals (
    letter INTEGER PRIMARY KEY,               -- letters.seq
    digest BLOB    NOT NULL,                  -- of the body
    rest   BLOB    NOT NULL,
    body   BLOB    NOT NULL
);
