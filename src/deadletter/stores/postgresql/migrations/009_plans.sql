-- What a campaign has yet to take: its letters in the order they go, many to a row.
-- Each gets a row of its own in campaign_items when its turn comes.
CREATE TABLE deadletter.campaign_plans (
    campaign integer   NOT NULL,              -- campaigns.seq
    first    integer   NOT NULL,              -- ordinal of the first of them
    until    integer   NOT NULL,              -- ordinal behind the last
    letters  bigint[]  NOT NULL,              -- letters.seq, also after it is purged
    reach    int8range NOT NULL,              -- from the least of them to the greatest
    PRIMARY KEY (campaign, until)
);
CREATE INDEX campaign_plans_by_letter ON deadletter.campaign_plans USING gist (reach);

INSERT INTO deadletter.campaign_plans (campaign, first, until, letters, reach)
SELECT campaign, min(ordinal), max(ordinal) + 1, array_agg(letter ORDER BY ordinal),
    int8range(min(letter), max(letter), '[]')
FROM deadletter.campaign_items WHERE outcome = 'planned'
GROUP BY campaign, ordinal / 200;
DELETE FROM deadletter.campaign_items WHERE outcome = 'planned';
ALTER TABLE deadletter.campaign_items ALTER COLUMN outcome DROP DEFAULT;
