-- Seals on letters, and sums by identity, see core/seals.py. Letters
-- that are there already have no seals until a chore seals them as they are; what is
-- there is where the sums begin.
ALTER TABLE letter_contents ADD COLUMN seal BLOB;          -- of the message
ALTER TABLE letter_contents ADD COLUMN story_seal BLOB;
ALTER TABLE letter_originals ADD COLUMN seal BLOB;

ALTER TABLE office ADD COLUMN letter_marks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE office ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
ALTER TABLE office ADD COLUMN death_marks INTEGER NOT NULL DEFAULT 0;
UPDATE office SET
    letter_marks = (SELECT coalesce(text_marks(id, 1), 0) FROM letters),
    deaths = (SELECT coalesce(sum(total), 0) FROM groups),
    death_marks = (SELECT coalesce(text_marks(fingerprint, total), 0) FROM groups);

ALTER TABLE mailboxes ADD COLUMN sent_marks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tally ADD COLUMN marks INTEGER NOT NULL DEFAULT 0;
UPDATE tally SET marks = fate_marks(fate, n);
UPDATE mailboxes SET sent_marks = fate_marks('sent', sent) +
    (SELECT coalesce(message_marks(id, body), 0) FROM messages WHERE mailbox = mailboxes.id)
    & 4611686018427387903;
