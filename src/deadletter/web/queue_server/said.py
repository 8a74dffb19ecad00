"""
What clients say and what they are answered, as values.

One type for JSON and protobuf: the names are those of `querator.proto`. In JSON an
unknown name is refused, since it is a slip more often than not.
"""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Time = Annotated[datetime, Meta(tz=True)]


class Said(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that goes over the wire."""


class Reply(Said, frozen=True):
    """The answer to calls without data, and to every call that failed."""

    code: Int
    code_text: str
    message: str = ""
    details: dict[str, str] = field(default_factory=dict)


class Named(Said, frozen=True):
    """A queue by its name, and nothing else: info, stats, reload."""

    queue_name: str = ""


class Partition(Said, frozen=True):
    """One of a queue's partitions."""

    partition: Int = 0


class QueueInfo(Said, frozen=True):
    """A queue. In an update what is missing stays as it is."""

    queue_name: str = ""
    created_at: Time | UnsetType | None = UNSET
    updated_at: Time | UnsetType | None = UNSET
    dead_queue: str | UnsetType = UNSET
    reference: str | UnsetType = UNSET
    lease_timeout: str | UnsetType = UNSET
    expire_timeout: str | UnsetType = UNSET
    max_attempts: Int | UnsetType = UNSET
    requested_partitions: Int | UnsetType = UNSET
    partitions: list[Partition] = field(default_factory=list)
    namespace: str | UnsetType = UNSET


class ListQueues(Said, frozen=True):
    """Which queues to list."""

    pivot: str = ""
    limit: Int = 0
    namespace: str = ""


class Queues(Said, frozen=True):
    """Queues by name."""

    items: list[QueueInfo]


class DeleteQueue(Said, frozen=True):
    """Which queue to delete, and whether to ask no questions."""

    queue_name: str = ""
    force: bool = False


class ProduceItem(Said, frozen=True, gc=False):
    """What a producer brings: bytes, or text if there are none."""

    encoding: str = ""
    kind: str = ""
    reference: str = ""
    enqueue_at: Time | UnsetType | None = UNSET
    payload: bytes = field(default=b"", name="bytes")
    utf8: str = ""


class Produce(Said, frozen=True):
    """Items to add."""

    queue_name: str = ""
    request_timeout: str = ""
    items: list[ProduceItem] = field(default_factory=list)


class Lease(Said, frozen=True):
    """How many items somebody wants, and how long they will wait for them."""

    queue_name: str = ""
    batch_size: Int = 0
    client_id: str = ""
    request_timeout: str = ""


class LeaseItem(Said, frozen=True, gc=False):
    """An item that is lent."""

    encoding: str
    kind: str
    reference: str
    id: str
    attempts: Int
    lease_deadline: Time | UnsetType
    payload: bytes = field(name="bytes")


class Lent(Said, frozen=True):
    """Items that are lent, all of one partition."""

    queue_name: str
    partition: Int
    items: list[LeaseItem]


class Complete(Said, frozen=True):
    """Items that are done with."""

    queue_name: str = ""
    partition: Int = 0
    request_timeout: str = ""
    ids: list[str] = field(default_factory=list)


class RetryItem(Said, frozen=True, gc=False):
    """An item to be given back."""

    id: str = ""
    retry_at: Time | UnsetType | None = UNSET
    dead: bool = False


class Retry(Said, frozen=True):
    """Items to be given back."""

    queue_name: str = ""
    partition: Int = 0
    items: list[RetryItem] = field(default_factory=list)


class PartitionStats(Said, frozen=True):
    """What is in one partition."""

    partition: Int
    total: Int
    total_leased: Int
    failures: Int
    average_age: str
    average_leased_age: str
    scheduled: Int


class LogicalStats(Said, frozen=True):
    """What is asked of a queue, and what is in it."""

    produce_waiting: Int
    lease_waiting: Int
    complete_waiting: Int
    in_flight: Int
    partitions: list[PartitionStats]


class Stats(Said, frozen=True):
    """How a queue is doing."""

    queue_name: str
    logical_queues: list[LogicalStats] = field(name="logicalQueues")


class Clear(Said, frozen=True):
    """What to delete of a queue."""

    queue_name: str = ""
    scheduled: bool = False
    queue: bool = False
    destructive: bool = False


class StorageItem(Said, frozen=True, gc=False):
    """An item as it is stored."""

    id: str = ""
    source_id: str = ""
    is_leased: bool = False
    lease_deadline: Time | UnsetType | None = UNSET
    expire_deadline: Time | UnsetType | None = UNSET
    dead_deadline: Time | UnsetType | None = UNSET
    created_at: Time | UnsetType | None = UNSET
    updated_at: Time | UnsetType | None = UNSET
    enqueue_at: Time | UnsetType | None = UNSET
    attempts: Int = 0
    max_attempts: Int = 0
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    payload: bytes = b""


class ListItems(Said, frozen=True):
    """Which items to list."""

    queue_name: str = ""
    partition: Int = 0
    pivot: str = ""
    limit: Int = 0


class Items(Said, frozen=True):
    """Items as they are stored."""

    items: list[StorageItem]


class ImportItems(Said, frozen=True):
    """Items to be stored as they are."""

    queue_name: str = ""
    partition: Int = 0
    items: list[StorageItem] = field(default_factory=list)


class Imported(Said, frozen=True):
    """Items as they are stored now; another number in protobuf than in lists."""

    items: list[StorageItem]


class DeleteItems(Said, frozen=True):
    """Items to be deleted."""

    queue_name: str = ""
    partition: Int = 0
    ids: list[str] = field(default_factory=list)
