-- Error texts by their trigrams, as numbers; see text_index.py. Filing a letter only
-- notes its number. A text leaves the index in the transaction that changes or deletes it.
CREATE TABLE deadletter.letter_trigrams (
    letter   bigint    PRIMARY KEY,           -- letters.seq
    trigrams integer[] NOT NULL
);
CREATE INDEX letter_trigrams_by_trigram ON deadletter.letter_trigrams
    USING gin (trigrams);

CREATE TABLE deadletter.letters_unindexed (
    letter bigint NOT NULL                    -- letters.seq, also after it is purged
);
INSERT INTO deadletter.letters_unindexed SELECT seq FROM deadletter.letters;

CREATE FUNCTION deadletter.letters_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO deadletter.letters_unindexed SELECT seq FROM kept;
    RETURN NULL;
END $$;
CREATE TRIGGER letters_kept AFTER INSERT ON deadletter.letters
    REFERENCING NEW TABLE AS kept
    FOR EACH STATEMENT EXECUTE FUNCTION deadletter.letters_kept();

CREATE FUNCTION deadletter.letters_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM deadletter.letter_trigrams t
    WHERE t.letter = ANY (ARRAY(SELECT seq FROM gone));
    RETURN NULL;
END $$;
CREATE TRIGGER letters_gone AFTER DELETE ON deadletter.letters
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION deadletter.letters_gone();

CREATE FUNCTION deadletter.letter_text_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM deadletter.letter_trigrams WHERE letter = old.seq;
    INSERT INTO deadletter.letters_unindexed VALUES (old.seq);
    RETURN NULL;
END $$;
CREATE TRIGGER letter_text_changed AFTER UPDATE OF error_text ON deadletter.letters
    FOR EACH ROW WHEN (old.error_text IS DISTINCT FROM new.error_text)
    EXECUTE FUNCTION deadletter.letter_text_changed();
