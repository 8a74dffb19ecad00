-- Letters of a campaign that wait for another of their key; each gets an item of its
-- own when its turn comes, or when it is held.
CREATE TABLE campaign_waiting (
    campaign INTEGER NOT NULL,                -- campaigns.seq
    follows  INTEGER NOT NULL,                -- letters.seq of the one before it
    letter   INTEGER NOT NULL,                -- letters.seq, also after it is purged
    head     INTEGER NOT NULL,                -- letters.seq of the first of its key
    place    INTEGER NOT NULL,                -- its place in the order sent
    ready    INTEGER NOT NULL DEFAULT 0,      -- the one before it has ended
    PRIMARY KEY (campaign, follows)
) WITHOUT ROWID;
CREATE INDEX campaign_waiting_ready ON campaign_waiting (campaign, place)
    WHERE ready = 1;
CREATE INDEX campaign_waiting_of_key ON campaign_waiting (campaign, head);
CREATE INDEX campaign_waiting_of_letter ON campaign_waiting (letter);
-- Items before `free` were planned as such; later ones had waited.
ALTER TABLE campaigns ADD COLUMN free INTEGER NOT NULL DEFAULT 0;
ALTER TABLE campaigns ADD COLUMN keyed INTEGER NOT NULL DEFAULT 0;
UPDATE campaigns SET free = items;
