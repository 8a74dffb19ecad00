"""A client of the queue server: produce, lease, complete, retry, and administration."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from msgspec import UNSET, Struct, UnsetType, field, structs

from deadletter.client.connection import Connected, Connection, Later
from deadletter.core.policy import LimitMode
from deadletter.core.text import format_duration, parse_duration
from deadletter.system import SystemDice

from .model import Item, ItemRetry, LeaseQueue, NewItem, PartitionStats

T = TypeVar("T")

WAIT: Final = 30.0  # seconds a request may take
_SHORTEST: Final = 0.011  # seconds, the shortest valid request_timeout
_PAUSE: Final = 0.2  # seconds between two attempts
_GRACE: Final = 5.0  # seconds after the request_timeout until the client gives up


class LeasedItem(Struct, frozen=True, kw_only=True, gc=False):
    """An item that is leased until its deadline."""

    id: str
    payload: bytes = field(default=b"", name="bytes")
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    attempts: int = 0
    lease_deadline: datetime | None = None


class Lease(Struct, frozen=True, kw_only=True):
    """Leased items, all of one partition: complete or retry them there."""

    queue_name: str
    partition: int = 0
    items: tuple[LeasedItem, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(item.id for item in self.items)


class QueueClient(Connected):
    """
    A client of the queue server, in JSON.

    Requests that the server answers with 454 (retry) are sent again. A produce whose
    connection broke is not sent again: its items may have been added. A `reason` is
    recorded in the audit, on one line.
    """

    def __init__(self, url: str, *, token: str | None = None, **how: Any) -> None:
        super().__init__(Connection(url, token=token, **how))
        self._name = SystemDice().new_id()
        self._leases = 0

    async def create_queue(self, queue: LeaseQueue, *, reason: str = "") -> None:
        """Create a queue; raises Conflict if it exists."""
        await self._call("queues.create", _queue_fields(queue), _Status, reason=reason)

    async def update_queue(self, queue: LeaseQueue, *, reason: str = "") -> None:
        """Change the options of a queue."""
        await self._call("queues.update", _queue_fields(queue), _Status, reason=reason)

    async def delete_queue(self, name: str, *, force: bool = False, reason: str = "") -> None:
        """Delete a queue and its items; a dead queue in use only with `force`."""
        fields = {"queue_name": name, "force": force}
        await self._call("queues.delete", fields, _Status, reason=reason)

    async def queue(self, name: str) -> LeaseQueue:
        """Return one queue."""
        return (await self._call("queues.info", {"queue_name": name}, _Queue)).value()

    async def queues(self, *, pivot: str = "", limit: int = 1000) -> list[LeaseQueue]:
        """Return queues by name, from `pivot` on, itself included."""
        found = await self._call("queues.list", {"pivot": pivot, "limit": limit}, _Queues)
        return [one.value() for one in found.items]

    async def produce(self, queue: str, items: Sequence[NewItem], *, wait: float = WAIT) -> None:
        """Add items, all or none; returns once they are durable."""
        fields = [
            {
                "bytes": item.payload,
                "reference": item.reference,
                "encoding": item.encoding,
                "kind": item.kind,
                "enqueue_at": item.enqueue_at,
            }
            for item in items
        ]
        await self._call("queue.produce", _request(queue, wait, items=fields), _Status, wait)

    async def lease(
        self, queue: str, *, limit: int = 1, wait: float = WAIT, client_id: str | None = None
    ) -> Lease:
        """
        Lease up to `limit` items, waiting up to `wait` seconds for the first.

        The lease has no items if there were none in that time.
        """
        self._leases += 1
        name = client_id or f"{self._name}-{self._leases}"
        end = time.monotonic() + wait
        left = wait
        while left >= _SHORTEST:
            request = _request(queue, left, batch_size=limit, client_id=name)
            try:
                return await self._call("queue.lease", request, Lease, left, patient=False)
            except Later:  # there was nothing to lease, or the server is stopping
                left = end - time.monotonic()
                await asyncio.sleep(max(0.0, min(_PAUSE, left)))
        return Lease(queue_name=queue)

    async def complete(
        self, queue: str, partition: int, ids: Iterable[str], *, wait: float = WAIT
    ) -> None:
        """Complete leased items: all of them or none."""
        request = _request(queue, wait, partition=partition, ids=list(ids))
        await self._call("queue.complete", request, _Status, wait)

    async def retry(self, queue: str, partition: int, items: Iterable[ItemRetry]) -> None:
        """Return leased items to the queue or move them to the dead queue: all or none."""
        fields = {"queue_name": queue, "partition": partition, "items": list(items)}
        await self._call("queue.retry", fields, _Status)

    async def stats(self, queue: str) -> list[PartitionStats]:
        """Return the statistics of each partition."""
        found = await self._call("queue.stats", {"queue_name": queue}, _Stats)
        return [one.value() for all_ in found.logical for one in all_.partitions]

    async def clear(
        self,
        queue: str,
        *,
        waiting: bool = False,
        scheduled: bool = False,
        destructive: bool = False,
        reason: str = "",
    ) -> None:
        """Delete waiting or scheduled items; leased ones only if `destructive`."""
        fields = {
            "queue_name": queue,
            "queue": waiting,
            "scheduled": scheduled,
            "destructive": destructive,
        }
        await self._call("queue.clear", fields, _Status, reason=reason)

    async def items(
        self,
        queue: str,
        partition: int = 0,
        *,
        pivot: str = "",
        limit: int = 1000,
        scheduled: bool = False,
    ) -> list[Item]:
        """Return items in order, from `pivot` on, itself included; or scheduled ones."""
        call = "storage/scheduled.list" if scheduled else "storage/items.list"
        fields = {"queue_name": queue, "partition": partition, "pivot": pivot, "limit": limit}
        return (await self._call(call, fields, _Items)).value()

    async def import_items(
        self, queue: str, items: Sequence[Item], partition: int = 0, *, reason: str = ""
    ) -> list[Item]:
        """
        Add items as they are, with new ids; return those that were added.

        Items are skipped if an item in the queue has their `source_id`, so that the same
        import can be repeated.
        """
        fields = {
            "queue_name": queue,
            "partition": partition,
            "items": [_item_fields(item) for item in items],
        }
        call = "storage/items.import"
        return (await self._call(call, fields, _Items, reason=reason)).value()

    async def delete_items(
        self, queue: str, ids: Iterable[str], partition: int = 0, *, reason: str = ""
    ) -> None:
        """Delete items, leased or not; missing items are ignored."""
        fields = {"queue_name": queue, "partition": partition, "ids": list(ids)}
        await self._call("storage/items.delete", fields, _Status, reason=reason)

    async def _call(
        self,
        name: str,
        request: object,
        kind: type[T],
        wait: float = WAIT,
        *,
        patient: bool = True,
        reason: str = "",
    ) -> T:
        return await self._connection.call(
            f"/v1/{name}", request, kind, wait=wait + _GRACE, patient=patient, reason=reason
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
    limit_mode: LimitMode = LimitMode.REACHED
    requested_partitions: int = 0
    partitions: tuple[_Partition, ...] = ()
    reference: str = ""
    namespace: str = ""
    created_at: datetime | UnsetType | None = UNSET
    updated_at: datetime | UnsetType | None = UNSET

    def value(self) -> LeaseQueue:
        return LeaseQueue(
            name=self.queue_name,
            lease_timeout=parse_duration(self.lease_timeout),
            expire_timeout=parse_duration(self.expire_timeout),
            dead_queue=self.dead_queue or None,
            max_attempts=self.max_attempts,
            limit_mode=self.limit_mode,
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
    failures: int = 0
    total: int = 0
    total_leased: int = 0
    scheduled: int = 0
    average_age: str = "0s"
    average_leased_age: str = "0s"

    def value(self) -> PartitionStats:
        return PartitionStats(
            partition=self.partition,
            failures=self.failures,
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

    def value(self) -> list[Item]:
        """Return the items; on the wire a missing source_id is an empty text."""
        return [
            one if one.source_id else structs.replace(one, source_id=None) for one in self.items
        ]


def _item_fields(item: Item) -> dict[str, Any]:
    return structs.asdict(item) | {"source_id": item.source_id or ""}


def _request(queue: str, wait: float, **more: Any) -> dict[str, Any]:
    return {"queue_name": queue, "request_timeout": format_duration(wait), **more}


def _queue_fields(queue: LeaseQueue) -> dict[str, Any]:
    return {
        "queue_name": queue.name,
        "lease_timeout": format_duration(queue.lease_timeout),
        "expire_timeout": format_duration(queue.expire_timeout),
        "dead_queue": queue.dead_queue or "",
        "max_attempts": queue.max_attempts,
        "limit_mode": queue.limit_mode,
        "requested_partitions": queue.partitions,
        "reference": queue.reference,
        "namespace": queue.namespace,
    }
