"""Lease queues in the database: their options, and how much is in their partitions."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from deadletter.core.escaping import shown, stored
from deadletter.core.item_plans import Loads, Shelf
from deadletter.core.items import LeaseQueue
from deadletter.core.lease_queues import (
    check_new_queue,
    check_queue_change,
    check_queue_deletion,
    no_partition,
    no_queue,
)

from .pool import Connection

_SHARDS: Final = 16
_COLUMNS: Final = """
name, dead_queue, lease_timeout, expire_timeout, max_attempts, partitions, reference,
namespace, created_at, updated_at
"""
MORTAL: Final = """
NOT EXISTS (SELECT 1 FROM deadletter.lease_queues u WHERE u.dead_queue = q.name)
"""
"""Whether the items of a queue `q` may die."""

_SHELF: Final = f"SELECT {_COLUMNS}, id, {MORTAL} FROM deadletter.lease_queues q"  # noqa: S608 -- made of constants
_ALL: Final = f"SELECT {_COLUMNS} FROM deadletter.lease_queues"  # noqa: S608 -- made of constants
_ONE: Final = f"{_SHELF} WHERE name = $1"
# Held, so that nobody deletes it before what is put into it is there.
_HOLD: Final = f"{_ONE} FOR KEY SHARE"
_SOME: Final = f"{_SHELF} WHERE id = ANY($1)"
PAGE: Final = f"""
{_ALL} WHERE name >= $1 AND ($3::text IS NULL OR namespace = $3)
ORDER BY name LIMIT $2
"""
# Options are judged by those of other queues: one change at a time.
_LOCK: Final = "LOCK TABLE deadletter.lease_queues IN SHARE ROW EXCLUSIVE MODE"
_SET: Final = f"""
INSERT INTO deadletter.lease_queues ({_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, deadletter.clock(), deadletter.clock())
ON CONFLICT (name) DO UPDATE SET dead_queue = excluded.dead_queue,
    lease_timeout = excluded.lease_timeout, expire_timeout = excluded.expire_timeout,
    max_attempts = excluded.max_attempts, partitions = excluded.partitions,
    reference = excluded.reference, namespace = excluded.namespace,
    updated_at = excluded.updated_at
"""  # noqa: S608 -- made of constants
_DETACH: Final = """
UPDATE deadletter.lease_queues SET dead_queue = NULL WHERE dead_queue = $1
"""
_DELETE: Final = "DELETE FROM deadletter.lease_queues WHERE name = $1 RETURNING id"
_EMPTY: Final = [
    f"DELETE FROM deadletter.{table} WHERE queue = $1"  # noqa: S608 -- made of constants
    for table in ("lease_loads", "item_origins")
]
_DELETE_ITEMS: Final = """
WITH gone AS (DELETE FROM deadletter.items WHERE queue = $1 RETURNING 1)
SELECT count(*) FROM gone
"""
LOADS: Final = """
SELECT partition, sum(load)::bigint FROM deadletter.lease_loads
WHERE queue = $1 GROUP BY partition
"""
SHARD: Final = f"pg_backend_pid() % {_SHARDS}"
COUNT: Final = """
ON CONFLICT (queue, partition, shard) DO UPDATE SET load = t.load + excluded.load
"""
_COUNT: Final = f"""
INSERT INTO deadletter.lease_loads AS t (queue, partition, shard, load)
SELECT queue, partition, {SHARD}, n
FROM unnest($1::int[], $2::int[], $3::bigint[]) AS g (queue, partition, n) {COUNT}
"""  # noqa: S608 -- made of constants


async def shelf(connection: Connection, name: str, *, hold: bool = False) -> Shelf:
    """One queue, maybe held so that nobody deletes it before the end."""
    row = await connection.fetchrow(_HOLD if hold else _ONE, name)
    if row is None:
        raise no_queue(name)
    return _shelf(row)


async def place(
    connection: Connection, name: str, partition: int, *, hold: bool = False
) -> Shelf:
    """One queue that has this partition."""
    found = await shelf(connection, name, hold=hold)
    if not 0 <= partition < found.queue.partitions:
        raise no_partition(found.queue, partition)
    return found


async def shelves(connection: Connection, ids: Iterable[int]) -> dict[int, Shelf]:
    """Queues by number."""
    found = map(_shelf, await connection.fetch(_SOME, list(ids)))
    return {one.number: one for one in found}


async def create(connection: Connection, *, queue: LeaseQueue) -> None:
    """Make a queue."""
    check_new_queue(queue, await _existing(connection))
    await _set(connection, queue)


async def update(connection: Connection, *, queue: LeaseQueue) -> None:
    """Change a queue's options."""
    check_queue_change(queue, await _existing(connection))
    await _set(connection, queue)


async def delete(connection: Connection, *, name: str, force: bool) -> int:
    """Delete a queue and all that is in it; how many items that were."""
    check_queue_deletion(name, await _existing(connection), force=force)
    await connection.execute(_DETACH, name)
    number = await connection.fetchval(_DELETE, name)
    gone = int(await connection.fetchval(_DELETE_ITEMS, number))
    for sql in _EMPTY:
        await connection.execute(sql, number)
    return gone


def by_partition(rows: Iterable[Sequence[int]], partitions: int) -> list[int]:
    """How many items nobody has, by partition, as `LOADS` tells."""
    found = {row[0]: row[1] for row in rows}
    return [found.get(partition, 0) for partition in range(partitions)]


async def count(connection: Connection, changed: Loads) -> None:
    """Note how many items more or less nobody has."""
    rows = sorted((*place, by) for place, by in changed.items() if by)
    if rows:
        await connection.execute(_COUNT, *map(list, zip(*rows, strict=True)))


def queue_of(row: Sequence[Any]) -> LeaseQueue:
    """A queue as it was set up."""
    return LeaseQueue(
        name=row[0],
        dead_queue=row[1],
        lease_timeout=row[2],
        expire_timeout=row[3],
        max_attempts=row[4],
        partitions=row[5],
        reference=shown(row[6]),
        namespace=shown(row[7]),
        created_at=row[8],
        updated_at=row[9],
    )


async def _existing(connection: Connection) -> dict[str, LeaseQueue]:
    await connection.execute(_LOCK)
    return {row[0]: queue_of(row) for row in await connection.fetch(_ALL)}


async def _set(connection: Connection, queue: LeaseQueue) -> None:
    await connection.execute(
        _SET,
        queue.name,
        queue.dead_queue,
        queue.lease_timeout,
        queue.expire_timeout,
        queue.max_attempts,
        queue.partitions,
        stored(queue.reference),
        stored(queue.namespace),
    )


def _shelf(row: Sequence[Any]) -> Shelf:
    return Shelf(number=row[10], queue=queue_of(row), mortal=row[11])
