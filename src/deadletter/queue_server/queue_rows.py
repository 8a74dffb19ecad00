"""Queues as rows: the columns are the same in every store that has tables."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.policy import LimitMode
from deadletter.core.text import shown, stored

from .model import LeaseQueue
from .plans import StoredQueue

_CHANGEABLE: Final = (
    "dead_queue",
    "lease_timeout",
    "expire_timeout",
    "max_attempts",
    "limit_mode",
    "partitions",
    "reference",
    "namespace",
    "updated_at",
)
COLUMNS: Final = ", ".join(("name", *_CHANGEABLE, "created_at"))
CHANGES: Final = ", ".join(f"{name} = excluded.{name}" for name in _CHANGEABLE)
"""The assignments of an upsert; a queue keeps the time of its creation."""


def values_of(queue: LeaseQueue, now: Any) -> tuple[Any, ...]:
    """Return the values of the columns; `now` is in the form that the store keeps."""
    return (
        queue.name,
        queue.dead_queue,
        queue.lease_timeout,
        queue.expire_timeout,
        queue.max_attempts,
        queue.limit_mode.value,
        queue.partitions,
        stored(queue.reference),
        stored(queue.namespace),
        now,
        now,
    )


def queue_of(row: Sequence[Any], time: Callable[[Any], datetime]) -> LeaseQueue:
    """Return the queue in a row; `time` reads the times of the store."""
    return LeaseQueue(
        name=row[0],
        dead_queue=row[1],
        lease_timeout=row[2],
        expire_timeout=row[3],
        max_attempts=row[4],
        limit_mode=LimitMode(row[5]),
        partitions=row[6],
        reference=shown(row[7]),
        namespace=shown(row[8]),
        updated_at=time(row[9]),
        created_at=time(row[10]),
    )


def stored_queue_of(row: Sequence[Any], time: Callable[[Any], datetime]) -> StoredQueue:
    """Return the queue in a row that goes on with its number, and whether it is a dead queue."""
    return StoredQueue(number=row[11], queue=queue_of(row, time), is_dead_queue=bool(row[12]))
