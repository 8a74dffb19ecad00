-- The plan of a campaign whose letters are judged after they were frozen, as JSON, and the
-- second person who agreed to it.
ALTER TABLE campaigns ADD COLUMN plan TEXT;
ALTER TABLE campaigns ADD COLUMN approved_by TEXT NOT NULL DEFAULT '';
-- Letters of such a plan in sending order, some hundred in a row, each with its verdict.
CREATE TABLE campaign_slices (
    campaign INTEGER NOT NULL,                -- campaigns.seq
    place    INTEGER NOT NULL,                -- of the slice among those of its plan
    contents TEXT    NOT NULL,                -- JSON: ids of letters, and verdicts
    PRIMARY KEY (campaign, place)
);
-- Letters that did not do well: few, and looked for.
CREATE INDEX campaign_items_failed ON campaign_items (campaign, outcome, ordinal)
    WHERE outcome IN ('failed', 'refused', 'held', 'unconfirmed');
