-- Origins are forgotten some time after the item has gone.
ALTER TABLE item_origins ADD COLUMN look_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE item_origins ADD COLUMN missed  INTEGER NOT NULL DEFAULT 0; -- at the last look
CREATE INDEX item_origins_look ON item_origins (look_at);
CREATE INDEX items_source ON items (queue, source_id) WHERE source_id IS NOT NULL;
