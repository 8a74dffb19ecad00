"""Lending over the memory store, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from deadletter.core.events import Event
from deadletter.queue_server.model import Item, LeasedItems, LeaseQueue, NewItem
from deadletter.queue_server.service import QueueService
from deadletter.stores.memory.items import MemoryItems
from deadletter.testing.virtual_time import SeededDice, VirtualClock, run_virtual

JOBS = LeaseQueue(name="jobs", lease_timeout=60.0, expire_timeout=3600.0)


class Watched(MemoryItems):
    """A memory store that notes what is asked of it, and can be slow or fail."""

    def __init__(self, *, clock: VirtualClock, dice: SeededDice) -> None:
        super().__init__(clock=clock, dice=dice)
        self.asked: list[tuple[str, int]] = []  # verb, and how many requests at once
        self.takes = 0.0  # seconds of each transaction
        self.fails: Exception | None = None

    def times(self, verb: str) -> list[int]:
        return [count for name, count in self.asked if name == verb]

    async def _note(self, verb: str, count: int) -> None:
        self.asked.append((verb, count))
        if self.takes:
            await asyncio.sleep(self.takes)
        if self.fails is not None:
            raise self.fails

    async def produce(self, queue: str, batches: Any) -> None:
        await self._note("produce", len(batches))
        await super().produce(queue, batches)

    async def lease(self, queue: str, wants: Any) -> Any:
        await self._note("lease", len(wants))
        return await super().lease(queue, wants)

    async def complete(self, queue: str, requests: Any) -> Any:
        await self._note("complete", len(requests))
        return await super().complete(queue, requests)

    async def retry(self, queue: str, requests: Any) -> Any:
        await self._note("retry", len(requests))
        return await super().retry(queue, requests)

    async def sweep(self, *, limit: int = 1000) -> Any:
        await self._note("sweep", 1)
        return await super().sweep(limit=limit)


class Rig:
    """Lending, its store, its clock, and what was observed."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.dice = dice = SeededDice("lending", self.clock)
        self.store = Watched(clock=self.clock, dice=dice)
        self.events: list[Event] = []
        self.lending = QueueService(
            self.store, clock=self.clock, dice=dice, observe=self.events.append
        )

    def lease(
        self, client: str = "c", want: int = 1, *, queue: str = "jobs", within: float = 30.0
    ) -> asyncio.Future[LeasedItems]:
        return self.lending.lease(queue, client, want, within=within)

    async def leased(self, client: str = "c", want: int = 1, **options: Any) -> Item:
        """One item, from those that were lent."""
        return (await self.lease(client, want, **options)).items[0]

    async def produce(self, *payloads: bytes, at: datetime | None = None) -> None:
        items = [NewItem(payload, enqueue_at=at) for payload in payloads]
        await self.lending.produce("jobs", items)

    def after(self, seconds: float) -> datetime:
        return self.clock.now() + timedelta(seconds=seconds)

    def seen(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def lending(*queues: LeaseQueue) -> AsyncIterator[Rig]:
    rig = Rig()
    for queue in queues or (JOBS,):
        await rig.store.create_queue(queue)
    async with rig.lending:
        await asyncio.sleep(0.001)  # until the store has been swept once
        yield rig


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test whose hours pass at once."""

    def run() -> None:
        run_virtual(test())

    run.__name__ = test.__name__
    return run
