"""Where items came from: remembered, so that none comes twice, and forgotten again."""

from typing import Final

from deadletter.core.item_origins import REMEMBERED

_KEY: Final = "queue, source_id, source_queue, source_partition"
_SAME: Final = """
(o.queue, o.source_id, o.source_queue, o.source_partition)
    = (k.queue, k.source_id, k.source_queue, k.source_partition)
"""
_LATER: Final = f"deadletter.clock() + make_interval(secs => {REMEMBERED})"

# What died here: $1 queue, $2 ids, $3 queues and $4 partitions it came from.
MOVED: Final = f"""
INSERT INTO deadletter.item_origins ({_KEY}, look_at)
SELECT $1, *, {_LATER} FROM unnest($2::text[], $3::int[], $4::int[])
"""  # noqa: S608 -- made of constants
# What was imported: those that the queue $1 has not had, which it has had from now on.
IMPORTED: Final = f"""
INSERT INTO deadletter.item_origins ({_KEY}, look_at)
SELECT $1, source_id, 0, 0, {_LATER}
FROM unnest($2::text[]) AS source_id ORDER BY source_id
ON CONFLICT DO NOTHING RETURNING source_id
"""  # noqa: S608 -- made of constants
# Those that it has had; who asks still knows of them, and may ask again. Two who ask
# at once take them in the same order.
HAD: Final = f"""
WITH held AS MATERIALIZED (
    SELECT {_KEY} FROM deadletter.item_origins
    WHERE queue = $1 AND source_id = ANY($2::text[]) ORDER BY {_KEY} FOR UPDATE
)
UPDATE deadletter.item_origins o SET look_at = {_LATER} FROM held k
WHERE {_SAME} RETURNING o.source_id
"""  # noqa: S608 -- made of constants
# The rule is `is_forgotten` of the core.
FORGET: Final = f"""
WITH due AS MATERIALIZED (
    SELECT {_KEY}, missed FROM deadletter.item_origins
    WHERE look_at <= deadletter.clock() ORDER BY look_at LIMIT $1 FOR UPDATE SKIP LOCKED
), looked AS MATERIALIZED (
    SELECT due.*, EXISTS (SELECT 1 FROM deadletter.items i
        WHERE i.queue = due.queue AND i.source_id = due.source_id) AS is_there
    FROM due
), forgotten AS (
    DELETE FROM deadletter.item_origins o USING looked k
    WHERE {_SAME} AND k.missed AND NOT k.is_there
), kept AS (
    UPDATE deadletter.item_origins o SET look_at = {_LATER}, missed = NOT k.is_there
    FROM looked k WHERE {_SAME} AND NOT (k.missed AND NOT k.is_there)
)
SELECT count(*) FROM due
"""  # noqa: S608 -- made of constants
