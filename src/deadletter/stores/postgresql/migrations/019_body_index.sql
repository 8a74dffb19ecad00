-- Bodies by their trigrams, where the office wants that: see body_index.py. A letter's
-- body is not indexed (NULL) while it is too large, or its turn has not come.
ALTER TABLE deadletter.letter_trigrams
    ADD COLUMN body integer[],
    ADD COLUMN body_limit integer NOT NULL DEFAULT 0; -- what `largest` was then
CREATE INDEX letter_trigrams_by_body ON deadletter.letter_trigrams USING gin (body)
    WHERE body IS NOT NULL;
CREATE INDEX letter_trigrams_by_limit ON deadletter.letter_trigrams (body_limit);
CREATE INDEX letter_trigrams_bodiless ON deadletter.letter_trigrams (letter)
    WHERE body IS NULL;

-- One row, or none while nobody has said.
CREATE TABLE deadletter.body_index (
    id      integer PRIMARY KEY CHECK (id = 1),
    largest integer NOT NULL                  -- bytes of a body that is indexed; 0: none is
);

CREATE FUNCTION deadletter.letter_body_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE deadletter.letter_trigrams SET body = NULL, body_limit = 0
    WHERE letter = old.letter;
    RETURN NULL;
END $$;
CREATE TRIGGER letter_body_changed AFTER UPDATE OF body ON deadletter.letter_contents
    FOR EACH ROW WHEN (old.body IS DISTINCT FROM new.body)
    EXECUTE FUNCTION deadletter.letter_body_changed();
