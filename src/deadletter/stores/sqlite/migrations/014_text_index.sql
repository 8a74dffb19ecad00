-- How far error texts are indexed, see `text_index`. One row.
CREATE TABLE text_index (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    indexed_up_to INTEGER NOT NULL DEFAULT 0, -- letters.seq
    removed       INTEGER NOT NULL DEFAULT 0  -- texts taken out since it was tidied
);
INSERT INTO text_index (id) VALUES (1);

-- Letters up to there that are not in the index: their text has changed since, or is
-- none that SQLite can hold as text.
CREATE TABLE letters_unindexed (letter INTEGER PRIMARY KEY);
