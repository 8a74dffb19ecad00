"""
Which lease queues there may be, and which may be whose dead queue (P7).

Pure checks, made by every store in the same transaction as the change itself.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from .errors import ConfigError, Conflict, NotFound
from .items import LeaseQueue
from .topology import check_deletion, validate

MAX_PARTITIONS: Final = 1_000
MAX_NAMESPACE: Final = 256


class _Options(Struct, frozen=True):
    """A lease queue as mailboxes are judged; dead queues may have a time limit here."""

    name: str
    dead_queue: str | None
    max_attempts: int
    reference: str
    expire_after: None = None


def check_new_queue(queue: LeaseQueue, existing: Mapping[str, LeaseQueue]) -> None:
    """Refuse to make what cannot be, or is there already."""
    _check(queue, existing)
    if queue.name in existing:
        raise Conflict(f"queue {queue.name} already exists: update it instead")


def check_queue_change(queue: LeaseQueue, existing: Mapping[str, LeaseQueue]) -> None:
    """Refuse to change what is not there, or into what cannot be."""
    found = existing.get(queue.name)
    if found is None:
        raise no_queue(queue.name)
    _check(queue, existing)
    if queue.partitions < found.partitions:
        raise ConfigError(
            f"queue {queue.name} has {found.partitions} partitions: they may only"
            f" become more, not {queue.partitions}"
        )


def check_queue_deletion(
    name: str, existing: Mapping[str, LeaseQueue], *, force: bool
) -> list[str]:
    """Refuse to delete a dead queue in use; the names of those using it if forced."""
    if name not in existing:
        raise no_queue(name)
    return check_deletion(name, _options(existing), force=force)


def no_queue(name: str) -> NotFound:
    """There is no queue of that name."""
    return NotFound(f"there is no queue {name!a}: create it first")


def no_partition(queue: LeaseQueue, partition: int) -> NotFound:
    """The queue has no such partition."""
    return NotFound(
        f"queue {queue.name} has no partition {partition}: they are numbered 0 to"
        f" {queue.partitions - 1}"
    )


def _check(queue: LeaseQueue, existing: Mapping[str, LeaseQueue]) -> None:
    others = _options(existing)
    validate(_option(queue), others)
    if not 0 < queue.lease_timeout <= queue.expire_timeout < float("inf"):
        raise ConfigError(
            "lease_timeout and expire_timeout are above 0, and lease_timeout is not"
            f" longer: not {queue.lease_timeout:g} and {queue.expire_timeout:g} seconds"
        )
    if not 1 <= queue.partitions <= MAX_PARTITIONS:
        raise ConfigError(
            f"a queue has 1 to {MAX_PARTITIONS} partitions, not {queue.partitions}"
        )
    if len(queue.namespace) > MAX_NAMESPACE:
        raise ConfigError(f"a namespace has at most {MAX_NAMESPACE} characters")


def _options(queues: Mapping[str, LeaseQueue]) -> dict[str, _Options]:
    return {name: _option(queue) for name, queue in queues.items()}


def _option(queue: LeaseQueue) -> _Options:
    return _Options(queue.name, queue.dead_queue, queue.max_attempts, queue.reference)
