-- What copies of a letter's message are made of, so that they can be made in here:
-- all but id, body and lineage. Where `outgoing` is NULL, `rest` is asked.
ALTER TABLE deadletter.letter_contents
    ADD COLUMN outgoing   bytea,
    ADD COLUMN sent_at    timestamptz,
    ADD COLUMN expires_at timestamptz;
