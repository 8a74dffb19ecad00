-- How far bodies are indexed, see `body_index`. One row.
CREATE TABLE body_index (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    largest       INTEGER NOT NULL DEFAULT 0, -- bytes of a body that is indexed; 0: none is
    indexed_up_to INTEGER NOT NULL DEFAULT 0, -- letters.seq
    removed       INTEGER NOT NULL DEFAULT 0  -- bodies taken out since it was tidied
);
INSERT INTO body_index (id) VALUES (1);

-- Letters up to there whose bodies are not in the index: too large, or changed since.
CREATE TABLE bodies_unindexed (
    letter  INTEGER PRIMARY KEY,
    changed INTEGER NOT NULL
);
CREATE INDEX bodies_changed ON bodies_unindexed (letter) WHERE changed = 1;
