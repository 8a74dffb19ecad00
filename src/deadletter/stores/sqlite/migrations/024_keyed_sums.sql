-- Sums by identity may be made with a key, see core/seals.py; beside each is the id of
-- its key. Those that are there have none. Campaigns get sums of their letters by what
-- became of them; what is there is where they begin.
ALTER TABLE mailboxes ADD COLUMN marks_key BLOB NOT NULL DEFAULT x'00000000';
ALTER TABLE office ADD COLUMN marks_key BLOB NOT NULL DEFAULT x'00000000';
ALTER TABLE campaign_outcomes ADD COLUMN marks_key BLOB NOT NULL DEFAULT x'00000000';
ALTER TABLE campaign_outcomes ADD COLUMN marks INTEGER NOT NULL DEFAULT 0;
UPDATE campaign_outcomes AS told SET marks = (
    SELECT coalesce(item_marks(x'00000000', told.campaign, letter, told.outcome), 0)
    FROM (
        SELECT letter FROM campaign_items
        WHERE campaign = told.campaign AND outcome = told.outcome
        UNION ALL
        SELECT letter FROM campaign_waiting
        WHERE campaign = told.campaign AND told.outcome = 'waiting'));
