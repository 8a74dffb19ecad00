-- The server of others that letters go back to, and why it did not take one of them.
ALTER TABLE deadletter.campaigns ADD COLUMN through text NOT NULL DEFAULT '';
ALTER TABLE deadletter.campaign_items ADD COLUMN why text NOT NULL DEFAULT '';
