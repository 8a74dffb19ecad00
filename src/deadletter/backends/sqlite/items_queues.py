"""Lease queues in the file: their options, and how much is in their partitions."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from deadletter.core.escaping import shown, stored
from deadletter.core.item_plans import Loads, Shelf
from deadletter.core.items import LeaseQueue
from deadletter.core.lease_queues import (
    check_new_queue,
    check_queue_change,
    check_queue_deletion,
    no_queue,
)

from .rows import when
from .sql import numbers

_COLUMNS: Final = """
name, dead_queue, lease_timeout, expire_timeout, max_attempts, partitions, reference,
namespace, created_at, updated_at
"""
_SHELF: Final = f"""
SELECT {_COLUMNS}, id, NOT EXISTS (
    SELECT 1 FROM lease_queues AS user WHERE user.dead_queue = lease_queues.name)
FROM lease_queues
"""  # noqa: S608 -- made of constants
_ALL: Final = f"SELECT {_COLUMNS} FROM lease_queues"  # noqa: S608 -- made of constants
_ONE: Final = f"{_SHELF} WHERE name = ?"
_SOME: Final = f"{_SHELF} WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608 -- ours
_PAGE: Final = (
    f"{_ALL} WHERE name >= ? AND (? IS NULL OR namespace = ?) ORDER BY name LIMIT ?"
)
_SET: Final = f"""
INSERT INTO lease_queues ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET dead_queue = excluded.dead_queue,
    lease_timeout = excluded.lease_timeout, expire_timeout = excluded.expire_timeout,
    max_attempts = excluded.max_attempts, partitions = excluded.partitions,
    reference = excluded.reference, namespace = excluded.namespace,
    updated_at = excluded.updated_at
RETURNING id
"""  # noqa: S608 -- made of constants
_GROW: Final = """
INSERT OR IGNORE INTO lease_partitions (queue, partition)
WITH RECURSIVE numbered (partition) AS (
    VALUES (0) UNION ALL SELECT partition + 1 FROM numbered WHERE partition + 1 < ?)
SELECT ?, partition FROM numbered
"""
_DETACH: Final = "UPDATE lease_queues SET dead_queue = NULL WHERE dead_queue = ?"
_DELETE: Final = "DELETE FROM lease_queues WHERE name = ? RETURNING id"
_EMPTY: Final = [
    f"DELETE FROM {table} WHERE queue = ?"  # noqa: S608 -- made of constants
    for table in ("items", "lease_partitions", "item_origins")
]
_LOADS: Final = """
SELECT json_group_array(load)
FROM (SELECT load FROM lease_partitions WHERE queue = ? ORDER BY partition)
"""
_COUNT: Final = """
UPDATE lease_partitions SET load = load + ? WHERE queue = ? AND partition = ?
"""

_decode: Final = msgspec.json.Decoder(list[int]).decode


def shelf(connection: sqlite3.Connection, name: str) -> Shelf:
    """One queue."""
    row = connection.execute(_ONE, (name,)).fetchone()
    if row is None:
        raise no_queue(name)
    return _shelf(row)


def shelves(connection: sqlite3.Connection, ids: set[int]) -> dict[int, Shelf]:
    """Queues by number."""
    found = map(_shelf, connection.execute(_SOME, (numbers(ids),)))
    return {one.number: one for one in found}


def page(
    connection: sqlite3.Connection, pivot: str, limit: int, namespace: str | None
) -> list[LeaseQueue]:
    """Queues by name."""
    within = stored(namespace)
    rows = connection.execute(_PAGE, (pivot, within, within, limit))
    return [_queue(row) for row in rows]


def create(connection: sqlite3.Connection, queue: LeaseQueue, now: int) -> None:
    """Make a queue."""
    check_new_queue(queue, _existing(connection))
    _set(connection, queue, now)


def update(connection: sqlite3.Connection, queue: LeaseQueue, now: int) -> None:
    """Change a queue's options."""
    check_queue_change(queue, _existing(connection))
    _set(connection, queue, now)


def delete(connection: sqlite3.Connection, name: str, *, force: bool) -> int:
    """Delete a queue and all that is in it; how many items that were."""
    check_queue_deletion(name, _existing(connection), force=force)
    connection.execute(_DETACH, (name,))
    (number,) = connection.execute(_DELETE, (name,)).fetchone()
    items, *_ = [connection.execute(sql, (number,)).rowcount for sql in _EMPTY]
    return items


def loads(connection: sqlite3.Connection, queue: int) -> list[int]:
    """How many items nobody has, by partition."""
    (packed,) = connection.execute(_LOADS, (queue,)).fetchone()
    return _decode(packed)


def count(connection: sqlite3.Connection, changed: Loads) -> None:
    """Note how many items more or less nobody has."""
    for (queue, partition), by in changed.items():
        if by:
            connection.execute(_COUNT, (by, queue, partition))


def _existing(connection: sqlite3.Connection) -> dict[str, LeaseQueue]:
    return {row[0]: _queue(row) for row in connection.execute(_ALL)}


def _set(connection: sqlite3.Connection, queue: LeaseQueue, now: int) -> None:
    values = (
        queue.name,
        queue.dead_queue,
        queue.lease_timeout,
        queue.expire_timeout,
        queue.max_attempts,
        queue.partitions,
        stored(queue.reference),
        stored(queue.namespace),
        now,
        now,
    )
    ((number,),) = connection.execute(_SET, values).fetchall()
    connection.execute(_GROW, (queue.partitions, number))


def _queue(row: Sequence[Any]) -> LeaseQueue:
    return LeaseQueue(
        name=row[0],
        dead_queue=row[1],
        lease_timeout=row[2],
        expire_timeout=row[3],
        max_attempts=row[4],
        partitions=row[5],
        reference=shown(row[6]),
        namespace=shown(row[7]),
        created_at=when(row[8]),
        updated_at=when(row[9]),
    )


def _shelf(row: Sequence[Any]) -> Shelf:
    return Shelf(number=row[10], queue=_queue(row), mortal=row[11] == 1)
