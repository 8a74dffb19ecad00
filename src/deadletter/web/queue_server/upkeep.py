"""What those who run queues ask: queues, what is in them, and how they are doing."""

from typing import TypeVar

from msgspec import UNSET, UnsetType

from deadletter.core.counts import many
from deadletter.core.durations import format_duration
from deadletter.core.errors import ConfigError
from deadletter.core.item_plans import cleared
from deadletter.core.items import LeaseQueue
from deadletter.lending import Lending

from . import limits
from .acts import Act
from .said import (
    Clear,
    DeleteQueue,
    ListQueues,
    LogicalStats,
    Named,
    Partition,
    PartitionStats,
    QueueInfo,
    Queues,
    Stats,
)
from .status import DONE

T = TypeVar("T")


async def create_queue(lending: Lending, asked: QueueInfo) -> Act:
    """Make a queue."""
    queue = LeaseQueue(
        name=limits.queue_name(asked.queue_name),
        lease_timeout=limits.timeout("lease_timeout", asked.lease_timeout or ""),
        expire_timeout=limits.timeout("expire_timeout", asked.expire_timeout or ""),
        dead_queue=_dead_queue(asked.dead_queue or ""),
        max_attempts=limits.max_attempts(asked.max_attempts or 0),
        partitions=limits.partitions(asked.requested_partitions or 1),
        reference=limits.reference(asked.reference or ""),
        namespace=limits.namespace(asked.namespace or ""),
    )
    limits.lease_within_expiry(queue.lease_timeout, queue.expire_timeout)
    await lending.store.create_queue(queue)
    return Act(queue.name, _options(queue), DONE)


async def update_queue(lending: Lending, asked: QueueInfo) -> Act:
    """Change what is named; the rest of a queue stays as it is."""
    old = await lending.store.queue(limits.queue_name(asked.queue_name))
    lease = _or(asked.lease_timeout, format_duration(old.lease_timeout))
    expire = _or(asked.expire_timeout, format_duration(old.expire_timeout))
    queue = LeaseQueue(
        name=old.name,
        lease_timeout=limits.timeout("lease_timeout", lease),
        expire_timeout=limits.timeout("expire_timeout", expire),
        dead_queue=_dead_queue(_or(asked.dead_queue, old.dead_queue or "")),
        max_attempts=limits.max_attempts(_or(asked.max_attempts, old.max_attempts)),
        partitions=limits.partitions(asked.requested_partitions or old.partitions),
        reference=limits.reference(_or(asked.reference, old.reference)),
        namespace=limits.namespace(_or(asked.namespace, old.namespace)),
    )
    limits.lease_within_expiry(queue.lease_timeout, queue.expire_timeout)
    await lending.update_queue(queue)
    return Act(queue.name, _options(queue), DONE)


async def list_queues(lending: Lending, asked: ListQueues) -> Queues:
    """Queues by name, from the pivot on."""
    found = await lending.store.queues(
        pivot=limits.text("pivot", asked.pivot),
        limit=limits.listed(asked.limit),
        namespace=limits.namespace(asked.namespace) or None,
    )
    return Queues([_info(queue) for queue in found])


async def queue_info(lending: Lending, asked: Named) -> QueueInfo:
    """One queue."""
    return _info(await lending.store.queue(limits.queue_name(asked.queue_name)))


async def delete_queue(lending: Lending, asked: DeleteQueue) -> Act:
    """Delete a queue and what is in it."""
    queue = limits.queue_name(asked.queue_name)
    gone = await lending.delete_queue(queue, force=asked.force)
    return Act(queue, f"{many(gone, 'item')} deleted with it", DONE)


async def stats(lending: Lending, asked: Named) -> Stats:
    """How a queue is doing: what is asked of it here, and what is in it."""
    queue = limits.queue_name(asked.queue_name)
    found = await lending.store.stats(queue)
    counts = lending.counts(queue)
    partitions = [
        PartitionStats(
            partition=one.partition,
            total=one.total,
            total_leased=one.leased,
            failures=0,
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
        in_flight=counts.under_way,
        partitions=partitions,
    )
    return Stats(queue, [logical])


async def clear(lending: Lending, asked: Clear) -> Act:
    """Delete what waits in a queue or is scheduled, or both."""
    queue = limits.queue_name(asked.queue_name)
    if not (asked.queue or asked.scheduled):
        raise ConfigError(
            "invalid request; one of 'queue' and 'scheduled' must be true"
        )
    which = {
        "waiting": asked.queue,
        "scheduled": asked.scheduled,
        "destructive": asked.destructive,
    }
    gone = await lending.store.clear(queue, **which)
    states = ", ".join(state.name.lower() for state in sorted(cleared(**which)))
    return Act(queue, f"{many(gone, 'item')} deleted, of those {states}", DONE)


async def reload(lending: Lending, asked: Named) -> Act:
    """Have the store asked again for those who wait."""
    queue = await lending.store.queue(limits.queue_name(asked.queue_name))
    lending.look(queue.name)
    return Act(queue.name, "", DONE)


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
    )


def _options(queue: LeaseQueue) -> str:
    parts = (
        f"lease {format_duration(queue.lease_timeout)}",
        f"expire {format_duration(queue.expire_timeout)}",
        many(queue.max_attempts, "attempt") if queue.max_attempts else "",
        f"dead queue {queue.dead_queue}" if queue.dead_queue else "",
        f"{queue.partitions} partitions" if queue.partitions > 1 else "",
    )
    return ", ".join(part for part in parts if part)


def _dead_queue(name: str) -> str | None:
    return limits.queue_name(name) if name else None


def _or(given: T | UnsetType, otherwise: T) -> T:
    return otherwise if isinstance(given, UnsetType) else given
