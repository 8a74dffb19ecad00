-- When each message was sent, and its position as text that sorts by its numbers:
-- letters are replayed in this order. `sent_at_of` and `position_of` read the rest.
ALTER TABLE letters ADD COLUMN sent_at INTEGER;
ALTER TABLE letters ADD COLUMN sent_place TEXT;
UPDATE letters SET
    sent_at = sent_at_of((SELECT rest FROM letter_contents WHERE letter = seq)),
    sent_place = position_of((SELECT rest FROM letter_contents WHERE letter = seq));
