"""A dead-letter mailbox in memory and its consumer, for tests."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from deadletter.core.events import Event
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message
from deadletter.ports import Clock, QueueInfo, Source
from deadletter.runtime.dlq_consumer import DLQConsumer
from deadletter.stores.memory import MemoryEngine
from deadletter.testing.fakes import SeededDice
from deadletter.testing.virtual_time import VirtualClock, run_virtual

DLQ = "orders-dlq"


class Rig:
    """A dead-letter mailbox in memory, its consumer, and all that is told."""

    def __init__(
        self,
        handler: Callable[[DeadLetter], object],
        *,
        clock: Clock | None = None,
        source: Callable[[Source], Source] = lambda source: source,
        **options: Any,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.broker = MemoryEngine(clock=self.clock, dice=SeededDice()).broker
        self.events: list[Event] = []
        self.consumer = DLQConsumer(
            source=source(self.broker.source(DLQ)),
            handler=handler,
            clock=self.clock,
            dice=SeededDice(),
            observe=self.events.append,
            **options,
        )

    async def put(self, *ids: str) -> None:
        now = self.clock.now()
        messages = [Message(id=id_, body=b"{}", sent_at=now) for id_ in ids]
        await self.broker.sink(DLQ).send(messages)

    async def lose(self, *ids: str) -> None:
        """Letters whose consumer died over them."""
        await self.put(*ids)
        await self.broker.source(DLQ).receive(limit=len(ids), wait=0.0, lease=5.0)
        await asyncio.sleep(6.0)
        assert (await self.broker.sweep()).lost == len(ids)

    async def queue(self) -> QueueInfo:
        [queue] = await self.broker.queues()
        return queue

    def seen(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time."""

    def run() -> None:
        run_virtual(test())

    run.__name__ = test.__name__
    return run


def noting(seen: list[str]) -> Callable[[DeadLetter], Awaitable[None]]:
    async def handle(letter: DeadLetter) -> None:
        seen.append(letter.head.message_id)

    return handle


async def refusing(letter: DeadLetter) -> None:
    raise ConnectionError("nobody is there")


class Wrapped:
    """A source with something done to it."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner
        self.mailbox = inner.mailbox
        self.features = inner.features

    async def receive(self, **more: Any) -> Sequence[Delivery]:
        return await self.inner.receive(**more)

    async def settle(self, settlements: Sequence[Any]) -> Sequence[bool]:
        return await self.inner.settle(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        return await self.inner.extend(deliveries, lease=lease)
