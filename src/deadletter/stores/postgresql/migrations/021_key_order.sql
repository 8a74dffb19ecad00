-- Letters of a campaign that wait for another of their key; each gets an item of its
-- own when its turn comes, or when it is held.
CREATE TABLE deadletter.campaign_waiting (
    campaign integer NOT NULL,                -- campaigns.seq
    follows  bigint  NOT NULL,                -- letters.seq of the one before it
    letter   bigint  NOT NULL,                -- letters.seq, also after it is purged
    head     bigint  NOT NULL,                -- letters.seq of the first of its key
    place    integer NOT NULL,                -- its place in the order sent
    ready    boolean NOT NULL DEFAULT false,  -- the one before it has ended
    PRIMARY KEY (campaign, follows)
);
CREATE INDEX campaign_waiting_ready ON deadletter.campaign_waiting (campaign, place)
    WHERE ready;
CREATE INDEX campaign_waiting_of_key ON deadletter.campaign_waiting (campaign, head);
CREATE INDEX campaign_waiting_of_letter ON deadletter.campaign_waiting (letter);
-- Items before `free` were planned as such; later ones had waited, and none of these
-- before `late` is `sending`.
ALTER TABLE deadletter.campaigns
    ADD COLUMN free  integer NOT NULL DEFAULT 0,
    ADD COLUMN late  integer NOT NULL DEFAULT 0,
    ADD COLUMN keyed boolean NOT NULL DEFAULT false;
UPDATE deadletter.campaigns SET free = items, late = items;
