"""
Items and queues of the queue server as values, and the rules of an item's life.

Producers add items; consumers lease them, then complete them or return them for a retry.
An item is dead when its attempts or its time are used up. Everything here is pure.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.policy import LimitMode
from deadletter.core.text import shown, stored
from deadletter.core.topology import check_deletion, validate

SCHEDULE_SLACK: Final = 0.1  # seconds: a time less far ahead than this means now
CLOCK_SLACK: Final = timedelta(seconds=1)
"""The most by which two clocks differ that are considered to agree."""

MAX_PARTITIONS: Final = 1_000
MAX_NAMESPACE: Final = 256


class LeaseQueue(Struct, frozen=True, kw_only=True):
    """Options of one queue."""

    name: str
    lease_timeout: float  # seconds
    expire_timeout: float  # seconds
    dead_queue: str | None = None
    max_attempts: int = 0  # 0: unlimited
    limit_mode: LimitMode = LimitMode.REACHED
    partitions: int = 1
    reference: str = ""  # a note for people
    namespace: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def last_attempt(self) -> int | None:
        """Return the number of the last attempt of an item; None means unlimited."""
        if not self.max_attempts:
            return None
        return self.max_attempts + (self.limit_mode is LimitMode.EXCEEDED)


class NewItem(Struct, frozen=True, gc=False):
    """An item as its producer sends it."""

    payload: bytes
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    enqueue_at: datetime | None = None  # None: now


class Item(Struct, frozen=True, kw_only=True, gc=False):
    """An item as it is stored."""

    id: str  # sorts by the order in its partition; changes with each return to the queue
    payload: bytes
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    attempts: int = 0  # counted at lease time
    max_attempts: int = 0  # of its queue
    source_id: str | None = None  # of a dead item: its id in the source queue
    is_leased: bool = False
    lease_deadline: datetime | None = None
    expire_deadline: datetime | None = None  # None: never, as in dead queues
    enqueue_at: datetime | None = None  # only while it is scheduled
    created_at: datetime
    updated_at: datetime


class LeasedItems(Struct, frozen=True):
    """Items leased by one client, all from one partition."""

    partition: int
    items: tuple[Item, ...]


class Completion(Struct, frozen=True):
    """Leased items to complete: all of them or none."""

    partition: int
    ids: tuple[str, ...]


class ItemRetry(Struct, frozen=True):
    """One leased item to return to its queue."""

    id: str
    retry_at: datetime | None = None  # None: now
    dead: bool = False  # move it to the dead queue, whatever attempts remain


class RetryBatch(Struct, frozen=True):
    """Leased items to return to their queue: all of them or none."""

    partition: int
    items: tuple[ItemRetry, ...]


class RejectionReason(StrEnum):
    """Why a request was not applied."""

    UNKNOWN = "unknown"  # the item does not exist
    NOT_LEASED = "not-leased"
    PARTITION = "partition"  # the partition does not exist
    REPEATED = "repeated"  # the request names the item twice


class Rejection(Struct, frozen=True):
    """A request of which nothing was applied, and the item that caused it."""

    reason: RejectionReason
    id: str = ""


class Death(StrEnum):
    """Why an item is dead."""

    ATTEMPTS = "attempts"
    EXPIRED = "expired"
    ASKED = "asked"  # its consumer declared it dead


class DeadItem(Struct, frozen=True):
    """A dead item and the dead queue it was moved to; `to` is None if it was deleted."""

    queue: str
    id: str
    death: Death
    to: str | None = None


class PartitionStats(Struct, frozen=True, kw_only=True):
    """Numbers and ages of the items of one partition."""

    partition: int
    failures: int = 0  # of writes to the partition by this process, lately
    total: int = 0
    leased: int = 0
    scheduled: int = 0
    average_age: float = 0.0  # seconds
    average_leased_age: float = 0.0


_ID_DIGITS: Final = 16
_LARGEST_NUMBER: Final = (1 << 63) - 1
_HEX: Final = "0123456789abcdef"


def item_id(number: int) -> str:
    """Return the id of the item with this number; ids sort as numbers do."""
    return f"{number:016x}"


def item_number(id: str) -> int | None:
    """Return the number of an item, or None if the text is not an item id."""
    if len(id) != _ID_DIGITS or id.strip(_HEX):
        return None
    number = int(id, 16)
    return number if number <= _LARGEST_NUMBER else None


def first_number(pivot: str) -> int:
    """Return the number that a list starts with; 0 without a pivot."""
    number = item_number(pivot) if pivot else 0
    if number is None:
        raise ConfigError(f"invalid pivot {pivot!a}: expected the id of an item, as lists show it")
    return number


def scheduled_for(wish: datetime | None, now: datetime) -> datetime | None:
    """Return when an item joins its queue, or None if that is now."""
    if wish is None or wish - now < timedelta(seconds=SCHEDULE_SLACK):
        return None
    return wish


def cause_of_death(
    attempts: int,
    last_attempt: int | None,
    expires: datetime | None,
    now: datetime,
    *,
    in_dead_queue: bool,
    declared: bool = False,
) -> Death | None:
    """
    Return why an item that nobody leases is dead, or None if it is alive.

    Items of dead queues never die again: they wait for people. `declared` means that
    the consumer of the item declared it dead.
    """
    if in_dead_queue:
        return None
    if declared:
        return Death.ASKED
    if last_attempt is not None and last_attempt <= attempts:
        return Death.ATTEMPTS
    if expires is not None and expires <= now:
        return Death.EXPIRED
    return None


def dies_at(
    attempts: int,
    last_attempt: int | None,
    expires: datetime | None,
    now: datetime,
    *,
    in_dead_queue: bool,
) -> datetime | None:
    """Return when an item dies if nobody leases it, or None for never."""
    if in_dead_queue:
        return None
    return now if last_attempt is not None and last_attempt <= attempts else expires


def shortened_lease(leased_at: datetime, until: datetime, now: datetime) -> datetime | None:
    """
    Return the corrected end of a lease that begins in the future, or None for any other.

    A clock that was ahead wrote it. The lease keeps its length, counted from now.
    """
    if leased_at - now <= CLOCK_SLACK:
        return None
    return now + max(until - leased_at, timedelta())


Labels: TypeAlias = tuple[str, str, str]
"""reference, encoding, kind"""

NO_LABELS: Final[Labels] = ("", "", "")

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Labels).decode


def pack_labels(reference: str, encoding: str, kind: str) -> bytes | None:
    """Pack the texts of an item into one column; None if all are empty, as mostly."""
    if not (reference or encoding or kind):
        return None
    return _encode((stored(reference), stored(encoding), stored(kind)))


def unpack_labels(packed: bytes | None) -> Labels:
    """Return the texts of an item."""
    if not packed:
        return NO_LABELS
    reference, encoding, kind = _decode(packed)
    return shown(reference), shown(encoding), shown(kind)


class _Options(Struct, frozen=True):
    """A queue as the rules for mailboxes see it; dead queues may have a time limit here."""

    name: str
    dead_queue: str | None
    max_attempts: int
    reference: str
    expire_after: None = None


def check_new_queue(queue: LeaseQueue, existing: Mapping[str, LeaseQueue]) -> None:
    """Raise if a queue cannot be created: ConfigError, or Conflict if it exists."""
    _check_options(queue, existing)
    if queue.name in existing:
        raise Conflict(f"queue {queue.name} already exists: update it instead")


def check_queue_change(queue: LeaseQueue, existing: Mapping[str, LeaseQueue]) -> None:
    """Raise if a queue cannot be changed: ConfigError, or NotFound if it does not exist."""
    found = existing.get(queue.name)
    if found is None:
        raise queue_not_found(queue.name)
    _check_options(queue, existing)
    if queue.partitions < found.partitions:
        raise ConfigError(
            f"queue {queue.name} has {found.partitions} partitions and cannot have fewer,"
            f" got {queue.partitions}"
        )


def check_queue_deletion(
    name: str, existing: Mapping[str, LeaseQueue], *, force: bool
) -> list[str]:
    """Return the queues that use this one as dead queue; raise unless `force` allows them."""
    if name not in existing:
        raise queue_not_found(name)
    return check_deletion(name, _all_options(existing), force=force)


def queue_not_found(name: str) -> NotFound:
    """Return the error for a queue that does not exist."""
    return NotFound(f"queue {name!a} does not exist: create it first")


def partition_not_found(queue: LeaseQueue, partition: int) -> NotFound:
    """Return the error for a partition that a queue does not have."""
    return NotFound(
        f"queue {queue.name} has no partition {partition}: they are numbered 0 to"
        f" {queue.partitions - 1}"
    )


def _check_options(queue: LeaseQueue, existing: Mapping[str, LeaseQueue]) -> None:
    validate(_options(queue), _all_options(existing))
    if not 0 < queue.lease_timeout <= queue.expire_timeout < float("inf"):
        raise ConfigError(
            "lease_timeout must be > 0 and at most expire_timeout, got"
            f" {queue.lease_timeout:g} s and {queue.expire_timeout:g} s"
        )
    if queue.limit_mode not in tuple(LimitMode):
        raise ConfigError(
            f"limit_mode must be {' or '.join(LimitMode)}, got {str(queue.limit_mode)!a}"
        )
    if not 1 <= queue.partitions <= MAX_PARTITIONS:
        raise ConfigError(f"partitions must be 1 to {MAX_PARTITIONS}, got {queue.partitions}")
    if len(queue.namespace) > MAX_NAMESPACE:
        raise ConfigError(
            f"namespace must have at most {MAX_NAMESPACE} characters, got {len(queue.namespace)}"
        )


def _all_options(queues: Mapping[str, LeaseQueue]) -> dict[str, _Options]:
    return {name: _options(queue) for name, queue in queues.items()}


def _options(queue: LeaseQueue) -> _Options:
    return _Options(queue.name, queue.dead_queue, queue.max_attempts, queue.reference)
