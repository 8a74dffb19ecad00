"""Carrying out what was planned: back to the tail, or to the dead queue."""

from collections.abc import Sequence
from typing import Final

from deadletter.core.errors import NotFound
from deadletter.core.item_life import item_id, least_loaded
from deadletter.core.item_plans import Back, Gone, Loads, Plan, Spared

from .database import Again
from .items_origins import MOVED
from .items_queues import LOADS, by_partition, count, shelf
from .pool import Connection

_NUMBERS: Final = """
SELECT nextval('deadletter.item_numbers') FROM generate_series(1, $1)
"""
_BACK: Final = """
UPDATE deadletter.items m
SET updated_at = deadletter.clock(), (seq, state, due, enqueue_at) = (
    SELECT ($2::bigint[])[at], ($3::smallint[])[at], ($4::timestamptz[])[at],
        ($5::timestamptz[])[at]
    FROM array_position($1::bigint[], m.seq) AS at)
WHERE m.seq = ANY($1::bigint[])
"""
_BURY: Final = """
UPDATE deadletter.items m
SET (seq, source_id) = (
        SELECT ($2::bigint[])[at], ($3::text[])[at]
        FROM array_position($1::bigint[], m.seq) AS at),
    queue = $4, partition = $5, max_attempts = $6, updated_at = deadletter.clock(),
    state = 0, attempts = 0, due = NULL, expires = NULL, enqueue_at = NULL
WHERE m.seq = ANY($1::bigint[])
"""
# What was kept for its death is waited for no longer.
_SPARE: Final = """
UPDATE deadletter.items SET expires = NULL, due = enqueue_at
WHERE seq = ANY($1::bigint[])
"""
_DELETE: Final = "DELETE FROM deadletter.items WHERE seq = ANY($1::bigint[])"
_NOTIFY: Final = """
SELECT pg_notify('deadletter', 'items:' || name) FROM unnest($1::text[]) AS name
"""


async def new_numbers(connection: Connection, n: int) -> list[int]:
    """So many new numbers."""
    return [row[0] for row in await connection.fetch(_NUMBERS, n)]


async def carry_out(connection: Connection, plan: Plan) -> None:
    """Do what was planned."""
    if plan.back:
        await _put_back(connection, plan.back)
    if plan.spared:
        await connection.execute(_SPARE, _numbers(plan.spared))
    await count(
        connection, plan.freed()
    )  # before the loads of dead queues are looked at
    for target, dying in plan.dead_queues().items():
        await _bury(connection, target, dying)
    if deleted := plan.deleted():
        await connection.execute(_DELETE, _numbers(deleted))
    await count(connection, plan.left())
    if ready := plan.ready():
        await connection.execute(_NOTIFY, sorted(ready))


async def _put_back(connection: Connection, back: Sequence[Back]) -> None:
    await connection.execute(
        _BACK,
        _numbers(back),
        await new_numbers(connection, len(back)),
        [int(one.state) for one in back],
        [one.due for one in back],
        [one.enqueue_at for one in back],
    )


async def _bury(connection: Connection, target: str, gone: Sequence[Gone]) -> None:
    try:
        dead = await shelf(connection, target, hold=True)
    except NotFound as error:  # deleted since we looked
        raise Again from error
    loads = await connection.fetch(LOADS, dead.number)
    partition = least_loaded(by_partition(loads, dead.queue.partitions))
    ids = [item_id(one.fact.number) for one in gone]
    await connection.execute(
        _BURY,
        _numbers(gone),
        await new_numbers(connection, len(gone)),
        ids,
        dead.number,
        partition,
        dead.queue.max_attempts,
    )
    await connection.execute(
        MOVED,
        dead.number,
        ids,
        [one.shelf.number for one in gone],
        [one.fact.partition for one in gone],
    )
    await count(connection, Loads({(dead.number, partition): len(gone)}))


def _numbers(planned: Sequence[Back | Gone | Spared]) -> list[int]:
    return [one.fact.number for one in planned]
