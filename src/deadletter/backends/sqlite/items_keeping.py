"""Looking at items where they are kept, bringing some in, clearing them away."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.escaping import stored
from deadletter.core.item_arrival import Arrival, arrival
from deadletter.core.item_labels import pack_labels
from deadletter.core.item_plans import ItemState, Loads, Shelf, numbers_of
from deadletter.core.item_stats import partition_stats
from deadletter.core.items import Item, PartitionStats
from deadletter.core.lease_queues import no_partition

from . import items_origins as origins
from .items_moving import first_of
from .items_queues import count, shelf
from .items_rows import Found, read_items
from .rows import micros
from .sql import numbers, write

_SECOND: Final = 1_000_000  # microseconds

_LIST: Final = """
SELECT * FROM items WHERE queue = :queue AND partition = :partition
AND state = :state AND seq >= :first ORDER BY seq LIMIT :limit
"""
_STATS: Final = """
SELECT partition, state + held, count(*), sum(? - created_at), sum(? - updated_at)
FROM items WHERE queue = ? GROUP BY 1, 2
"""
_IMPORT: Final = """
INSERT INTO items (seq, queue, partition, state, held, due, attempts, max_attempts,
    expires, enqueue_at, created_at, updated_at, source_id, labels, payload) VALUES
"""
_ADDED: Final = "SELECT * FROM items WHERE seq >= ?"
_MEANT: Final = """
FROM items WHERE +queue = :queue AND +partition = :partition
AND seq IN (SELECT value FROM json_each(:numbers))
"""
_STATES: Final = """
FROM items WHERE queue = :queue
AND state + held IN (SELECT value FROM json_each(:states))
"""
_COUNT: Final = "SELECT partition, state + held, count(*) {which} GROUP BY 1, 2"


def stats(connection: sqlite3.Connection, name: str, now: int) -> list[PartitionStats]:
    """What is in each partition."""
    place = shelf(connection, name)
    rows = connection.execute(_STATS, (now, now, place.number))
    sums = {
        (partition, state): (n, age / _SECOND, held / _SECOND)
        for partition, state, n, age, held in rows
    }
    return [partition_stats(n, sums) for n in range(place.queue.partitions)]


def listed(
    connection: sqlite3.Connection,
    *,
    name: str,
    partition: int,
    first: int,
    limit: int,
    scheduled: bool,
) -> Found:
    """Items in order."""
    values = {
        "queue": _place(connection, name, partition).number,
        "partition": partition,
        "state": ItemState.SCHEDULED if scheduled else ItemState.WAITING,
        "first": first,
        "limit": limit,
    }
    return read_items(connection, _LIST, values)


def import_items(
    connection: sqlite3.Connection,
    name: str,
    partition: int,
    items: Sequence[Item],
    now: datetime,
) -> Found:
    """Add items as they are, except those that were here already."""
    place = _place(connection, name, partition)
    sources = [stored(item.source_id) for item in items if item.source_id is not None]
    had = origins.had(connection, place.number, sources, now)
    first = first_of(connection, len(items))
    rows: list[tuple[Any, ...]] = []
    new: list[origins.Origin] = []
    changed: Loads = Loads()
    for item in items:
        source = stored(item.source_id)
        if source in had:
            continue
        if source is not None:
            had.add(source)
            new.append((place.number, source, 0, 0))
        came = arrival(place.queue, item, now, mortal=place.mortal)
        rows.append(_row(first + len(rows), place, partition, item, came))
        changed[place.number, partition] += came.state != ItemState.LEASED
    write(connection, _IMPORT, rows)
    origins.remember(connection, new, now)
    count(connection, changed)
    return read_items(connection, _ADDED, (first,))


def delete_items(
    connection: sqlite3.Connection, name: str, partition: int, ids: Sequence[str]
) -> int:
    """Delete items; how many there were."""
    values = {
        "queue": _place(connection, name, partition).number,
        "partition": partition,
        "numbers": numbers(numbers_of(ids)),
    }
    return _delete(connection, _MEANT, values)


def clear(
    connection: sqlite3.Connection, name: str, states: Collection[ItemState]
) -> int:
    """Delete items that stand so; how many there were."""
    number = shelf(connection, name).number
    return _delete(connection, _STATES, {"queue": number, "states": numbers(states)})


def _delete(connection: sqlite3.Connection, which: str, values: dict[str, Any]) -> int:
    changed: Loads = Loads()
    for partition, state, n in connection.execute(_COUNT.format(which=which), values):
        if state != ItemState.LEASED:
            changed[values["queue"], partition] -= n
    count(connection, changed)
    return connection.execute(f"DELETE {which}", values).rowcount


def _place(connection: sqlite3.Connection, name: str, partition: int) -> Shelf:
    place = shelf(connection, name)
    if not 0 <= partition < place.queue.partitions:
        raise no_partition(place.queue, partition)
    return place


def _row(
    seq: int, place: Shelf, partition: int, item: Item, came: Arrival
) -> tuple[Any, ...]:
    return (
        seq,
        place.number,
        partition,
        *_standing(came.state),
        _micros(came.due),
        item.attempts,
        place.queue.max_attempts,
        _micros(came.expires),
        _micros(came.enqueue_at),
        micros(item.created_at),
        micros(item.updated_at),
        stored(item.source_id),
        pack_labels(item.reference, item.encoding, item.kind),
        item.payload,
    )


def _standing(state: ItemState) -> tuple[int, int]:
    """As state and held: what is leased keeps its place in the queue."""
    if state is ItemState.LEASED:
        return int(ItemState.WAITING), 1
    return int(state), 0


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)
