"""The queue server's wire, as methods: produce, lease, complete, retry."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from msgspec import UNSET, Struct, UnsetType, field, structs

from deadletter.core.durations import format_duration, parse_duration
from deadletter.core.items import Again, Item, LeaseQueue, NewItem, PartitionStats
from deadletter.system import SystemDice

from .answers import Later
from .connection import Connected, Connection

T = TypeVar("T")

WAIT: Final = 30.0  # seconds a request may take
_SHORTEST: Final = 0.011  # seconds: less cannot be asked for
_PAUSE: Final = 0.2  # seconds between two attempts
_GRACE: Final = 5.0  # seconds more until we stop waiting for the answer


class LentItem(Struct, frozen=True, kw_only=True, gc=False):
    """An item that is lent to us until its deadline."""

    id: str
    payload: bytes = field(default=b"", name="bytes")
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    attempts: int = 0
    lease_deadline: datetime | None = None


class Lent(Struct, frozen=True, kw_only=True):
    """Items lent to us, all of one partition, to be completed or retried there."""

    queue_name: str
    partition: int = 0
    items: tuple[LentItem, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(item.id for item in self.items)


class QueueClient(Connected):
    """
    A client of the queue server, in JSON.

    What the server asks to be tried again (454) is. A produce whose connection broke
    off half-way is not: whether the items are there, nobody can know. A `reason` goes
    into the audit, on one line.
    """

    def __init__(self, url: str, *, token: str | None = None, **how: Any) -> None:
        super().__init__(Connection(url, token=token, **how))
        self._name = SystemDice().new_id()
        self._leases = 0

    async def create_queue(self, queue: LeaseQueue, *, reason: str = "") -> None:
        """Make a queue; one of that name already there is a Conflict."""
        await self._call("queues.create", _said_of(queue), _Status, reason=reason)

    async def update_queue(self, queue: LeaseQueue, *, reason: str = "") -> None:
        """Change a queue's options."""
        await self._call("queues.update", _said_of(queue), _Status, reason=reason)

    async def delete_queue(
        self, name: str, *, force: bool = False, reason: str = ""
    ) -> None:
        """Delete a queue and its items; one in use as dead queue only by `force`."""
        said = {"queue_name": name, "force": force}
        await self._call("queues.delete", said, _Status, reason=reason)

    async def queue(self, name: str) -> LeaseQueue:
        """One queue."""
        return (await self._call("queues.info", {"queue_name": name}, _Queue)).meant()

    async def queues(self, *, pivot: str = "", limit: int = 1000) -> list[LeaseQueue]:
        """Queues by name, from `pivot` on, itself included."""
        found = await self._call(
            "queues.list", {"pivot": pivot, "limit": limit}, _Queues
        )
        return [one.meant() for one in found.items]

    async def produce(
        self, queue: str, items: Sequence[NewItem], *, wait: float = WAIT
    ) -> None:
        """Add items, all or none; returns once they are there for good."""
        said = [
            {
                "bytes": item.payload,
                "reference": item.reference,
                "encoding": item.encoding,
                "kind": item.kind,
                "enqueue_at": item.enqueue_at,
            }
            for item in items
        ]
        await self._call(
            "queue.produce", _asked(queue, wait, items=said), _Status, wait
        )

    async def lease(
        self,
        queue: str,
        *,
        limit: int = 1,
        wait: float = WAIT,
        client_id: str | None = None,
    ) -> Lent:
        """
        Borrow up to `limit` items, waiting up to `wait` seconds for the first.

        None at all when there were none until then.
        """
        self._leases += 1
        name = client_id or f"{self._name}-{self._leases}"
        end = time.monotonic() + wait
        left = wait
        while left >= _SHORTEST:
            asked = _asked(queue, left, batch_size=limit, client_id=name)
            try:
                return await self._call("queue.lease", asked, Lent, left, patient=False)
            except Later:  # there was nothing, or the server is about to stop
                left = end - time.monotonic()
                await asyncio.sleep(max(0.0, min(_PAUSE, left)))
        return Lent(queue_name=queue)

    async def complete(
        self, queue: str, partition: int, ids: Iterable[str], *, wait: float = WAIT
    ) -> None:
        """Forget leased items for good: all of them or none."""
        asked = _asked(queue, wait, partition=partition, ids=list(ids))
        await self._call("queue.complete", asked, _Status, wait)

    async def retry(self, queue: str, partition: int, items: Iterable[Again]) -> None:
        """Give leased items back, or to the dead queue: all of them or none."""
        said = {"queue_name": queue, "partition": partition, "items": list(items)}
        await self._call("queue.retry", said, _Status)

    async def stats(self, queue: str) -> list[PartitionStats]:
        """What is in each partition."""
        found = await self._call("queue.stats", {"queue_name": queue}, _Stats)
        return [one.meant() for all_ in found.logical for one in all_.partitions]

    async def clear(
        self,
        queue: str,
        *,
        waiting: bool = False,
        scheduled: bool = False,
        destructive: bool = False,
        reason: str = "",
    ) -> None:
        """Delete what waits or is scheduled; what is leased only if `destructive`."""
        said = {
            "queue_name": queue,
            "queue": waiting,
            "scheduled": scheduled,
            "destructive": destructive,
        }
        await self._call("queue.clear", said, _Status, reason=reason)

    async def items(
        self,
        queue: str,
        partition: int = 0,
        *,
        pivot: str = "",
        limit: int = 1000,
        scheduled: bool = False,
    ) -> list[Item]:
        """Items in order, from `pivot` on, itself included; or those scheduled."""
        call = "storage/scheduled.list" if scheduled else "storage/items.list"
        said = {
            "queue_name": queue,
            "partition": partition,
            "pivot": pivot,
            "limit": limit,
        }
        return (await self._call(call, said, _Items)).meant()

    async def import_items(
        self,
        queue: str,
        items: Sequence[Item],
        partition: int = 0,
        *,
        reason: str = "",
    ) -> list[Item]:
        """
        Add items as they are, with ids of their own; those that were added.

        One whose `source_id` the queue has had already is left out: asking again
        does no harm.
        """
        said = {
            "queue_name": queue,
            "partition": partition,
            "items": [_told_of(item) for item in items],
        }
        call = "storage/items.import"
        return (await self._call(call, said, _Items, reason=reason)).meant()

    async def delete_items(
        self,
        queue: str,
        ids: Iterable[str],
        partition: int = 0,
        *,
        reason: str = "",
    ) -> None:
        """Delete items, leased or not; those that are gone already do not matter."""
        said = {"queue_name": queue, "partition": partition, "ids": list(ids)}
        await self._call("storage/items.delete", said, _Status, reason=reason)

    async def _call(
        self,
        name: str,
        said: object,
        kind: type[T],
        wait: float = WAIT,
        *,
        patient: bool = True,
        reason: str = "",
    ) -> T:
        return await self._connection.call(
            f"/v1/{name}",
            said,
            kind,
            wait=wait + _GRACE,
            patient=patient,
            reason=reason,
        )


class _Status(Struct, frozen=True):
    code: int = 200


class _Partition(Struct, frozen=True):
    partition: int = 0


class _Queue(Struct, frozen=True, kw_only=True):
    queue_name: str
    lease_timeout: str
    expire_timeout: str
    dead_queue: str = ""
    max_attempts: int = 0
    requested_partitions: int = 0
    partitions: tuple[_Partition, ...] = ()
    reference: str = ""
    namespace: str = ""
    created_at: datetime | UnsetType | None = UNSET
    updated_at: datetime | UnsetType | None = UNSET

    def meant(self) -> LeaseQueue:
        return LeaseQueue(
            name=self.queue_name,
            lease_timeout=parse_duration(self.lease_timeout),
            expire_timeout=parse_duration(self.expire_timeout),
            dead_queue=self.dead_queue or None,
            max_attempts=self.max_attempts,
            partitions=len(self.partitions) or self.requested_partitions or 1,
            reference=self.reference,
            namespace=self.namespace,
            created_at=self.created_at or None,
            updated_at=self.updated_at or None,
        )


class _Queues(Struct, frozen=True):
    items: tuple[_Queue, ...] = ()


class _PartitionStats(Struct, frozen=True):
    partition: int
    total: int = 0
    total_leased: int = 0
    scheduled: int = 0
    average_age: str = "0s"
    average_leased_age: str = "0s"

    def meant(self) -> PartitionStats:
        return PartitionStats(
            partition=self.partition,
            total=self.total,
            leased=self.total_leased,
            scheduled=self.scheduled,
            average_age=parse_duration(self.average_age),
            average_leased_age=parse_duration(self.average_leased_age),
        )


class _LogicalStats(Struct, frozen=True):
    partitions: tuple[_PartitionStats, ...] = ()


class _Stats(Struct, frozen=True):
    logical: tuple[_LogicalStats, ...] = field(default=(), name="logicalQueues")


class _Items(Struct, frozen=True):
    items: tuple[Item, ...] = ()

    def meant(self) -> list[Item]:
        """The items; on the wire one without a source has an empty text for it."""
        return [
            one if one.source_id else structs.replace(one, source_id=None)
            for one in self.items
        ]


def _told_of(item: Item) -> dict[str, Any]:
    return structs.asdict(item) | {"source_id": item.source_id or ""}


def _asked(queue: str, wait: float, **more: Any) -> dict[str, Any]:
    return {"queue_name": queue, "request_timeout": format_duration(wait), **more}


def _said_of(queue: LeaseQueue) -> dict[str, Any]:
    return {
        "queue_name": queue.name,
        "lease_timeout": format_duration(queue.lease_timeout),
        "expire_timeout": format_duration(queue.expire_timeout),
        "dead_queue": queue.dead_queue or "",
        "max_attempts": queue.max_attempts,
        "requested_partitions": queue.partitions,
        "reference": queue.reference,
        "namespace": queue.namespace,
    }
