"""Looking at items where they are kept, bringing some in, clearing them away."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.escaping import stored
from deadletter.core.item_arrival import Arrival, arrival
from deadletter.core.item_labels import pack_labels
from deadletter.core.item_plans import ItemState, Loads, numbers_of
from deadletter.core.item_stats import partition_stats
from deadletter.core.items import Item, PartitionStats

from .items_moving import new_numbers
from .items_origins import HAD, IMPORTED
from .items_queues import COUNT, SHARD, count, place, shelf
from .items_rows import ITEM, items
from .items_writing import CLOCK
from .pool import Connection

_LIST: Final = f"""
SELECT {ITEM} FROM unnest($3::smallint[]) AS meant (state) CROSS JOIN LATERAL (
    SELECT * FROM deadletter.items i
    WHERE i.queue = $1 AND i.partition = $2 AND i.state = meant.state AND i.seq >= $4
    ORDER BY i.seq LIMIT $5) m
ORDER BY m.seq LIMIT $5
"""  # noqa: S608 -- made of constants
_STATS: Final = """
SELECT partition, state, count(*), sum(deadletter.clock() - created_at),
    sum(deadletter.clock() - updated_at)
FROM deadletter.items WHERE queue = $1 GROUP BY partition, state
"""
_IMPORT: Final = """
INSERT INTO deadletter.items (queue, partition, max_attempts, seq, state, due, attempts,
    expires, enqueue_at, created_at, updated_at, source_id, labels, payload)
SELECT $1, $2, $3, * FROM unnest($4::bigint[], $5::smallint[], $6::timestamptz[],
    $7::int[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[],
    $11::timestamptz[], $12::text[], $13::bytea[], $14::bytea[])
"""
_ADDED: Final = f"""
SELECT {ITEM} FROM deadletter.items m
WHERE seq = ANY($1::bigint[])
"""  # noqa: S608 -- made of constants
_REMOVE: Final = f"""
WITH gone AS (
    DELETE FROM deadletter.items WHERE {{which}} RETURNING queue, partition, state
), counted AS (
    INSERT INTO deadletter.lease_loads AS t (queue, partition, shard, load)
    SELECT queue, partition, {SHARD}, -count(*) FROM gone WHERE state <> 1
    GROUP BY queue, partition ORDER BY partition {COUNT}
)
SELECT count(*) FROM gone
"""  # noqa: S608 -- made of constants
_DELETE: Final = _REMOVE.format(
    which="""seq = ANY($3::bigint[])
    AND CASE WHEN partition = $2 THEN queue END = $1"""
)
_CLEAR: Final = _REMOVE.format(which="queue = $1 AND state = ANY($2::smallint[])")


async def stats(connection: Connection, *, name: str) -> list[PartitionStats]:
    """What is in each partition."""
    found = await shelf(connection, name)
    rows = await connection.fetch(_STATS, found.number)
    sums = {
        (partition, state): (n, age.total_seconds(), held.total_seconds())
        for partition, state, n, age, held in rows
    }
    return [partition_stats(n, sums) for n in range(found.queue.partitions)]


async def listed(
    connection: Connection,
    *,
    name: str,
    partition: int,
    first: int,
    limit: int,
    scheduled: bool,
) -> list[Item]:
    """Items in order."""
    number = (await place(connection, name, partition)).number
    meant = (
        [ItemState.SCHEDULED] if scheduled else [ItemState.WAITING, ItemState.LEASED]
    )
    return items(await connection.fetch(_LIST, number, partition, meant, first, limit))


async def import_items(
    connection: Connection, *, name: str, partition: int, brought: Sequence[Item]
) -> list[Item]:
    """Add items as they are, except those that were here already."""
    target = await place(connection, name, partition, hold=True)
    now: datetime = await connection.fetchval(CLOCK)
    new = await _unknown(connection, target.number, brought)
    came = [arrival(target.queue, item, now, mortal=target.mortal) for item in new]
    numbers = await new_numbers(connection, len(new))
    await connection.execute(
        _IMPORT,
        target.number,
        partition,
        target.queue.max_attempts,
        numbers,
        *_columns(new, came),
    )
    free = sum(one.state != ItemState.LEASED for one in came)
    await count(connection, Loads({(target.number, partition): free}))
    return items(await connection.fetch(_ADDED, numbers))


async def delete_items(
    connection: Connection, *, name: str, partition: int, ids: Sequence[str]
) -> int:
    """Delete items; how many there were."""
    number = (await place(connection, name, partition)).number
    return int(await connection.fetchval(_DELETE, number, partition, numbers_of(ids)))


async def clear(
    connection: Connection, *, name: str, states: Sequence[ItemState]
) -> int:
    """Delete items that stand so; how many there were."""
    number = (await shelf(connection, name)).number
    return int(await connection.fetchval(_CLEAR, number, states))


async def _unknown(
    connection: Connection, queue: int, brought: Sequence[Item]
) -> list[Item]:
    """Those that this queue has not had, which it has had from now on."""
    sources = {stored(i.source_id) for i in brought if i.source_id is not None}
    had = {row[0] for row in await connection.fetch(HAD, queue, list(sources))}
    ours = await connection.fetch(IMPORTED, queue, list(sources - had))
    left = {row[0] for row in ours}
    new = []
    for item in brought:
        source = stored(item.source_id)
        if source is None or source in left:
            new.append(item)
            left.discard(source or "")
    return new


def _columns(new: Sequence[Item], came: Sequence[Arrival]) -> tuple[list[Any], ...]:
    return (
        [int(one.state) for one in came],
        [one.due for one in came],
        [item.attempts for item in new],
        [one.expires for one in came],
        [one.enqueue_at for one in came],
        [item.created_at for item in new],
        [item.updated_at for item in new],
        [stored(item.source_id) for item in new],
        [pack_labels(item.reference, item.encoding, item.kind) for item in new],
        [item.payload for item in new],
    )
