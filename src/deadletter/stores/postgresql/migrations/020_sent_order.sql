-- The position of each message as text that sorts by its numbers: of letters whose
-- messages were sent at the same moment, replays follow it.
ALTER TABLE deadletter.letter_contents ADD COLUMN sent_place text COLLATE "C";
