"""Base of the mailbox contracts: a clock, and helpers for common steps."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from itertools import count
from typing import Any, TypeAlias

import pytest

from deadletter.core.message import Delivery, Message
from deadletter.ports import Broker, Engine, QueueInfo, Released, Source, Swept

from .fakes import START, FakeClock

Test: TypeAlias = Callable[..., Awaitable[None]]

_numbers = count(1)

LEASE = 30.0


def a_message(body: bytes = b"{}", **fields: Any) -> Message:
    """Return a message with an id of its own."""
    fields.setdefault("id", f"m-{next(_numbers)}")
    fields.setdefault("sent_at", START)
    return Message(body=body, **fields)


def promised(feature: str) -> Callable[[Test], Test]:
    """Return a test of something that not every engine promises: others leave it out."""

    def only_where_promised(test: Test) -> Test:
        @wraps(test)
        async def run(self: Any, engine: Engine, **rest: Any) -> None:
            if not getattr(engine.features, feature):
                pytest.skip(f"{engine.features.engine} does not promise {feature}")
            await test(self, engine, **rest)

        return run

    return only_where_promised


def tally(engine: Engine, told: dict[str, int]) -> dict[str, int]:
    """Return what an engine should say it has counted: nothing, where it does not count."""
    return told if engine.features.tallies else {}


class MailboxBench:
    """
    Common ground of the contracts.

    A backend's test class gives a fixture `engine`, opened on the `clock` it is
    handed, with nothing in it; and names its engine class as `driver`, which makes
    mypy hold it to the ports. Where a backend keeps time itself, it overrides
    `pass_time` with a true sleep.
    """

    driver: type[Engine]
    patience = 5.0  # seconds; a slow broker's test class may raise it
    at_once = 0.05  # seconds; where a server has to be asked, more
    slack = 0.0  # seconds by which a broker that keeps time itself may be late

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        """Let a number of seconds pass for the engine."""
        clock.advance(seconds)

    async def sent(
        self, engine: Engine, *messages: Message, to: str = "orders", delay: float = 0.0
    ) -> Sequence[Message]:
        """Send these, or one made up."""
        sending = messages or (a_message(),)
        await engine.broker.sink(to).send(sending, delay=delay)
        return sending

    async def received(
        self,
        engine: Engine,
        *,
        limit: int = 1,
        lease: float = LEASE,
        alone: bool = False,
        of: str = "orders",
    ) -> Delivery:
        """Return the one delivery there must be."""
        source = engine.broker.source(of)
        (delivery,) = await source.receive(
            limit=limit, wait=self.patience, lease=lease, alone=alone
        )
        return delivery

    async def nothing_left(self, engine: Engine, *, of: str = "orders") -> bool:
        """Return whether a receive finds nothing, neither usual nor suspect."""
        source = engine.broker.source(of)
        usual = await source.receive(limit=10, wait=0, lease=LEASE)
        alone = await source.receive(limit=1, wait=0, lease=LEASE, alone=True)
        return not usual and not alone

    async def lost(
        self, engine: Engine, clock: FakeClock, count: int = 1, *, alone: bool = False
    ) -> None:
        """Have a worker claim `count` messages and die."""
        source = engine.broker.source("orders")
        taken = await source.receive(limit=count, wait=0, lease=LEASE, alone=alone)
        assert len(taken) == count
        await self.pass_time(clock, LEASE + 1)
        await self.swept(engine)

    async def swept(self, engine: Engine) -> Swept:
        """Return what a sweep finds; where it sees only what was received, after a look."""
        if not engine.features.sees_lost:
            for queue in await engine.broker.queues():
                source = engine.broker.source(queue.options.name)
                seen = await source.receive(limit=10, wait=self.slack, lease=1.0)
                assert seen == [], "nobody but suspects was to be here"
        return await engine.broker.sweep()


async def drained(source: Source, *, limit: int = 100) -> list[Delivery]:
    """Return everything that can be received now."""
    found: list[Delivery] = []
    while batch := await source.receive(limit=limit, wait=0, lease=LEASE):
        found += batch
    return found


async def info(broker: Broker, name: str = "orders") -> QueueInfo:
    """Return what a mailbox says of itself."""
    return next(q for q in await broker.queues() if q.options.name == name)


async def release(source: Source, delivery: Delivery, delay: float = 0.0, **how: Any) -> None:
    """Release a delivery that is still ours."""
    assert await source.settle([Released(delivery, delay, **how)]) == [True]


async def soon(awaitable: "asyncio.Task[Any]", within: float) -> float:
    """Return how many seconds a task took; it must end within `within` seconds."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await asyncio.wait_for(awaitable, within)
    return loop.time() - begun
