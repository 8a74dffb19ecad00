-- When a replayed copy had been confirmed that failed again later.
ALTER TABLE deadletter.campaign_items ADD COLUMN confirmed_at timestamptz;
