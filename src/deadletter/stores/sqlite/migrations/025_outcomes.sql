-- The server of others that letters go back to, and why it did not take one of them.
ALTER TABLE campaigns ADD COLUMN through TEXT NOT NULL DEFAULT '';
ALTER TABLE campaign_items ADD COLUMN why TEXT NOT NULL DEFAULT '';
