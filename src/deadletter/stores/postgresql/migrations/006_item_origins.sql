-- Origins are forgotten some time after the item has gone.
ALTER TABLE deadletter.item_origins
    ADD COLUMN look_at timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN missed  boolean     NOT NULL DEFAULT false;  -- at the last look
CREATE INDEX item_origins_look ON deadletter.item_origins (look_at);
CREATE INDEX items_source ON deadletter.items (queue, source_id)
    WHERE source_id IS NOT NULL;
