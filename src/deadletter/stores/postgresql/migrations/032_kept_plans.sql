-- The plan of a campaign whose letters are judged after they were frozen, as JSON, and the
-- second person who agreed to it.
ALTER TABLE deadletter.campaigns
    ADD COLUMN plan        text,
    ADD COLUMN approved_by text NOT NULL DEFAULT '';
-- Letters of such a plan in sending order, some hundred in a row, each with its verdict.
CREATE TABLE deadletter.campaign_slices (
    campaign integer NOT NULL,                -- campaigns.seq
    place    integer NOT NULL,                -- of the slice among those of its plan
    contents text    NOT NULL,                -- JSON: ids of letters, and verdicts
    PRIMARY KEY (campaign, place)
);
