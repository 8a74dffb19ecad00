"""
Administration of queues and their items.

Changes are audited, call by call: who, which queue, how much, why. Producing, leasing,
completing and retrying are not.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from msgspec import UNSET, Struct, UnsetType, structs

from deadletter.core.errors import ConfigError
from deadletter.core.policy import LimitMode
from deadletter.core.text import format_duration, many, plain_line

from . import limits
from .model import Item, LeaseQueue
from .plans import states_to_clear
from .service import QueueService
from .wire import (
    DONE,
    ClearRequest,
    DeleteItems,
    DeleteQueue,
    ImportItems,
    ImportReply,
    ItemList,
    ListItems,
    ListQueues,
    LogicalStats,
    Partition,
    PartitionStats,
    QueueInfo,
    QueueList,
    QueueName,
    Stats,
    StorageItem,
    WireMessage,
)

REASON_HEADER: Final = b"dlq-reason"
LONGEST: Final = 4_000  # characters, as of reasons elsewhere

# Clients that omit zero values use these in an update to remove an option. Neither is
# valid as a value.
NO_DEAD_QUEUE: Final = "~"
NO_MAX_ATTEMPTS: Final = -(2**31)


class AuditedChange(Struct, frozen=True):
    """A change for the audit, and the reply to the client."""

    queue: str
    detail: str
    answer: WireMessage


def reason_of(headers: Mapping[bytes, str]) -> str:
    """
    Return the reason that a client gives in a header, or an empty text.

    Headers are read as Latin-1, but people and their shells send UTF-8.
    """
    given = headers.get(REASON_HEADER, "").encode("latin-1").decode(errors="backslashreplace")
    if len(given) > LONGEST:
        raise ConfigError(f"invalid Dlq-Reason; it is longer than {LONGEST:,} characters")
    return plain_line(given)


T = TypeVar("T")


async def create_queue(service: QueueService, request: QueueInfo) -> AuditedChange:
    """Create a queue."""
    queue = LeaseQueue(
        name=limits.queue_name(request.queue_name),
        lease_timeout=limits.timeout("lease_timeout", request.lease_timeout or ""),
        expire_timeout=limits.timeout("expire_timeout", request.expire_timeout or ""),
        dead_queue=_dead_queue(request.dead_queue or ""),
        max_attempts=limits.attempts("max_attempts", request.max_attempts or 0),
        limit_mode=limits.limit_mode(request.limit_mode or LimitMode.REACHED),
        partitions=limits.partitions(request.requested_partitions or 1),
        reference=limits.reference(request.reference or ""),
        namespace=limits.namespace(request.namespace or ""),
    )
    limits.lease_within_expiry(queue.lease_timeout, queue.expire_timeout)
    await service.store.create_queue(queue)
    return AuditedChange(queue.name, _options(queue), DONE)


async def update_queue(service: QueueService, request: QueueInfo) -> AuditedChange:
    """Change the given options of a queue; the others stay unchanged."""
    old = await service.store.queue(limits.queue_name(request.queue_name))
    request = with_removed_options(request)
    lease = _or(request.lease_timeout, format_duration(old.lease_timeout))
    expire = _or(request.expire_timeout, format_duration(old.expire_timeout))
    queue = LeaseQueue(
        name=old.name,
        lease_timeout=limits.timeout("lease_timeout", lease),
        expire_timeout=limits.timeout("expire_timeout", expire),
        dead_queue=_dead_queue(_or(request.dead_queue, old.dead_queue or "")),
        max_attempts=limits.attempts("max_attempts", _or(request.max_attempts, old.max_attempts)),
        limit_mode=limits.limit_mode(_or(request.limit_mode, old.limit_mode)),
        partitions=limits.partitions(request.requested_partitions or old.partitions),
        reference=limits.reference(_or(request.reference, old.reference)),
        namespace=limits.namespace(_or(request.namespace, old.namespace)),
    )
    limits.lease_within_expiry(queue.lease_timeout, queue.expire_timeout)
    await service.update_queue(queue)
    return AuditedChange(queue.name, _options(queue), DONE)


def with_removed_options(request: QueueInfo) -> QueueInfo:
    """Return an update in which options to be removed have their zero values."""
    if request.dead_queue == NO_DEAD_QUEUE:
        request = structs.replace(request, dead_queue="")
    if request.max_attempts == NO_MAX_ATTEMPTS:
        request = structs.replace(request, max_attempts=0)
    return request


async def list_queues(service: QueueService, request: ListQueues) -> QueueList:
    """Return queues by name, from the pivot on."""
    found = await service.store.queues(
        pivot=limits.queue_name(request.pivot, "pivot") if request.pivot else "",
        limit=limits.listed(request.limit),
        namespace=limits.namespace(request.namespace) or None,
    )
    return QueueList([_info(queue) for queue in found])


async def queue_info(service: QueueService, request: QueueName) -> QueueInfo:
    """Return one queue."""
    return _info(await service.store.queue(limits.queue_name(request.queue_name)))


async def delete_queue(service: QueueService, request: DeleteQueue) -> AuditedChange:
    """Delete a queue and its items."""
    queue = limits.queue_name(request.queue_name)
    gone = await service.delete_queue(queue, force=request.force)
    return AuditedChange(queue, f"{many(gone, 'item')} deleted with it", DONE)


async def stats(service: QueueService, request: QueueName) -> Stats:
    """Return the waiting requests to a queue here, and statistics of its items."""
    queue = limits.queue_name(request.queue_name)
    found = await service.store.stats(queue)
    counts = service.counts(queue)
    partitions = [
        PartitionStats(
            partition=one.partition,
            total=one.total,
            total_leased=one.leased,
            failures=one.failures,
            average_age=format_duration(one.average_age),
            average_leased_age=format_duration(one.average_leased_age),
            scheduled=one.scheduled,
        )
        for one in found
    ]
    logical = LogicalStats(
        produce_waiting=counts.produce,
        lease_waiting=counts.lease,
        complete_waiting=counts.complete,
        in_flight=counts.in_progress,
        partitions=partitions,
    )
    return Stats(queue, [logical])


async def clear(service: QueueService, request: ClearRequest) -> AuditedChange:
    """Delete waiting or scheduled items of a queue, or both."""
    queue = limits.queue_name(request.queue_name)
    if not (request.queue or request.scheduled):
        raise ConfigError("invalid queue; one of 'queue' and 'scheduled' must be true, or both")
    which = {
        "waiting": request.queue,
        "scheduled": request.scheduled,
        "destructive": request.destructive,
    }
    gone = await service.store.clear(queue, **which)
    states = ", ".join(state.name.lower() for state in sorted(states_to_clear(**which)))
    return AuditedChange(queue, f"{many(gone, 'item')} deleted, of those {states}", DONE)


async def reload(service: QueueService, request: QueueName) -> AuditedChange:
    """Ask the store again on behalf of waiting clients."""
    queue = await service.store.queue(limits.queue_name(request.queue_name))
    service.look(queue.name)
    return AuditedChange(queue.name, "", DONE)


def _info(queue: LeaseQueue) -> QueueInfo:
    return QueueInfo(
        queue_name=queue.name,
        created_at=queue.created_at or UNSET,
        updated_at=queue.updated_at or UNSET,
        dead_queue=queue.dead_queue or "",
        reference=queue.reference,
        lease_timeout=format_duration(queue.lease_timeout),
        expire_timeout=format_duration(queue.expire_timeout),
        max_attempts=queue.max_attempts,
        requested_partitions=queue.partitions,
        partitions=[Partition(number) for number in range(queue.partitions)],
        namespace=queue.namespace,
        # Clients that know no other mode may reject a field that they do not know.
        limit_mode=UNSET if queue.limit_mode is LimitMode.REACHED else queue.limit_mode.value,
    )


def _options(queue: LeaseQueue) -> str:
    parts = (
        f"lease {format_duration(queue.lease_timeout)}",
        f"expire {format_duration(queue.expire_timeout)}",
        many(queue.max_attempts, "attempt") if queue.max_attempts else "",
        f"limit {queue.limit_mode}" if queue.limit_mode is LimitMode.EXCEEDED else "",
        f"dead queue {queue.dead_queue}" if queue.dead_queue else "",
        f"{queue.partitions} partitions" if queue.partitions > 1 else "",
    )
    return ", ".join(part for part in parts if part)


def _dead_queue(name: str) -> str | None:
    return limits.queue_name(name, "dead_queue") if name else None


def _or(given: T | UnsetType, otherwise: T) -> T:
    return otherwise if isinstance(given, UnsetType) else given


async def list_items(service: QueueService, request: ListItems) -> ItemList:
    """Return items in order, from the pivot on."""
    return ItemList(await _listed(service, request, scheduled=False))


async def list_scheduled(service: QueueService, request: ListItems) -> ItemList:
    """Return items that are scheduled for later."""
    return ItemList(await _listed(service, request, scheduled=True))


async def import_items(service: QueueService, request: ImportItems) -> AuditedChange:
    """Add items as they are."""
    queue = limits.queue_name(request.queue_name)
    partition = limits.partition(request.partition)
    limits.not_empty("items", request.items)
    now = service.clock.now()
    items = [_item(item, now) for item in request.items]
    added = await service.import_items(queue, partition, items)
    detail = f"{len(added)} of {len(items)} items added to partition {partition}"
    return AuditedChange(queue, detail, ImportReply(_stored(added)))


async def delete_items(service: QueueService, request: DeleteItems) -> AuditedChange:
    """Delete items, leased or not; missing items are ignored."""
    queue = limits.queue_name(request.queue_name)
    partition = limits.partition(request.partition)
    limits.not_empty("ids", request.ids)
    ids = [limits.item_id(one) for one in request.ids]
    gone = await service.store.delete_items(queue, partition, ids)
    detail = f"{gone} of {len(ids)} items deleted from partition {partition}"
    return AuditedChange(queue, detail, DONE)


async def _listed(
    service: QueueService, request: ListItems, *, scheduled: bool
) -> list[StorageItem]:
    found = await service.store.items(
        limits.queue_name(request.queue_name),
        limits.partition(request.partition),
        pivot=limits.text("pivot", request.pivot),
        limit=limits.listed(request.limit),
        scheduled=scheduled,
    )
    return _stored(found)


def _item(given: StorageItem, now: datetime) -> Item:
    return Item(
        id=limits.text("id", given.id),
        payload=given.payload,
        reference=limits.reference(given.reference),
        encoding=limits.text("encoding", given.encoding),
        kind=limits.text("kind", given.kind),
        attempts=limits.attempts("attempts", given.attempts),
        max_attempts=limits.attempts("max_attempts", given.max_attempts),
        source_id=limits.text("source_id", given.source_id) or None,
        is_leased=given.is_leased,
        lease_deadline=limits.moment("lease_deadline", given.lease_deadline),
        expire_deadline=limits.moment("expire_deadline", given.expire_deadline),
        enqueue_at=limits.moment("enqueue_at", given.enqueue_at),
        created_at=limits.moment("created_at", given.created_at) or now,
        updated_at=limits.moment("updated_at", given.updated_at) or now,
    )


def _stored(items: Sequence[Item]) -> list[StorageItem]:
    return [
        StorageItem(
            id=item.id,
            source_id=item.source_id or "",
            is_leased=item.is_leased,
            lease_deadline=item.lease_deadline or UNSET,
            expire_deadline=item.expire_deadline or UNSET,
            created_at=item.created_at,
            updated_at=item.updated_at,
            enqueue_at=item.enqueue_at or UNSET,
            attempts=item.attempts,
            max_attempts=item.max_attempts,
            reference=item.reference,
            encoding=item.encoding,
            kind=item.kind,
            payload=item.payload,
        )
        for item in items
    ]
