-- When a replayed copy had been confirmed that failed again later.
ALTER TABLE campaign_items ADD COLUMN confirmed_at INTEGER;
