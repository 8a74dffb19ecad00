"""
What the queue server lends: items, and the queues they wait in.

An item is leased, then completed or given back; it is dead when its attempts or its
time are used up. Its story is told by the words of the wire: produce, lease,
complete, retry.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

SOON: Final = 0.1  # seconds: what is due within that is due now


class LeaseQueue(Struct, frozen=True, kw_only=True):
    """A queue of items, as somebody set it up."""

    name: str
    lease_timeout: float  # seconds
    expire_timeout: float  # seconds
    dead_queue: str | None = None
    max_attempts: int = 0  # 0: as many as it takes
    partitions: int = 1
    reference: str = ""  # a note for people
    namespace: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None


class NewItem(Struct, frozen=True, gc=False):
    """What a producer brings."""

    payload: bytes
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    enqueue_at: datetime | None = None  # None: now


class Item(Struct, frozen=True, kw_only=True, gc=False):
    """An item as it is stored."""

    id: str  # sorts by the order in its partition; another one after each requeueing
    payload: bytes
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    attempts: int = 0  # grows when it is leased
    max_attempts: int = 0
    source_id: str | None = None  # of a dead item: the id it had in its source
    is_leased: bool = False
    lease_deadline: datetime | None = None
    expire_deadline: datetime | None = None  # None: never, as in dead queues
    enqueue_at: datetime | None = None  # while it is scheduled
    created_at: datetime
    updated_at: datetime


class Leased(Struct, frozen=True):
    """Items lent to one client; all of one partition."""

    partition: int
    items: tuple[Item, ...]


class Completion(Struct, frozen=True):
    """These are done with: all of them or none."""

    partition: int
    ids: tuple[str, ...]


class Again(Struct, frozen=True):
    """One item to be given back."""

    id: str
    retry_at: datetime | None = None  # None: now
    dead: bool = False  # to the dead queue, whatever attempts remain


class Retrial(Struct, frozen=True):
    """These are given back: all of them or none."""

    partition: int
    items: tuple[Again, ...]


class Wrong(StrEnum):
    """Why a request was not applied."""

    UNKNOWN = "unknown"  # no such item
    NOT_LEASED = "not-leased"
    PARTITION = "partition"  # no such partition


class Denial(Struct, frozen=True):
    """A request that was not applied, nothing of it, and which item is why."""

    wrong: Wrong
    id: str = ""


class Death(StrEnum):
    """Why an item is dead."""

    ATTEMPTS = "attempts"
    EXPIRED = "expired"
    ASKED = "asked"  # a consumer said so


class Departed(Struct, frozen=True):
    """A dead item and where it went; `to` is None when it was deleted."""

    queue: str
    id: str
    death: Death
    to: str | None = None


class PartitionStats(Struct, frozen=True, kw_only=True):
    """What is in one partition."""

    partition: int
    total: int = 0
    leased: int = 0
    scheduled: int = 0
    average_age: float = 0.0  # seconds
    average_leased_age: float = 0.0
