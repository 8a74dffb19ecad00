-- Which replay of the message was worked on last: a failed transaction is taken up
-- again only by a newer one, which somebody has sent on purpose.
ALTER TABLE transactions ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
