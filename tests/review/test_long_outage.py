"""Waiting for somebody who is away is no reason for the watchdog to bite."""

import asyncio
from collections.abc import Sequence
from typing import Any

from deadletter.core.errors import Unavailable
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery
from deadletter.runtime.availability import Availability, RuntimeContext
from deadletter.runtime.deliveries import ExclusiveGate
from deadletter.runtime.dlq_consumer import DLQConsumer
from deadletter.runtime.registration import WorkerOptions
from deadletter.runtime.worker import Worker
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually
from rig import Rig


class AwaySource:
    """A mailbox that nobody answers for."""

    mailbox = "orders"

    def __init__(self, features: Any) -> None:
        self.features = features

    async def receive(self, **wanted: Any) -> Sequence[Delivery]:
        raise Unavailable("nobody answers")


async def longest_silence(loop: Worker | DLQConsumer) -> float:
    """How long a loop was without a sign of life, in two seconds."""
    stop, longest = asyncio.Event(), 0.0
    running = asyncio.create_task(loop.run(stop))
    for _ in range(40):
        await asyncio.sleep(0.05)
        longest = max(longest, loop.heartbeat.elapsed())
    running.cancel()
    await asyncio.wait({running})
    return longest


async def test_a_worker_whose_broker_is_away_gives_signs_of_life() -> None:
    async with (rig := Rig()).app:
        engine = await rig.app.engine()
        source: Any = AwaySource(engine.features)
        worker = Worker(
            source=source,
            handler=asyncio.sleep,  # type: ignore[arg-type]  # never called
            options=WorkerOptions(),
            broker=engine.broker,
            atomic_burial=None,
            letters=await rig.app.letters(),
            ledger=None,
            gate=ExclusiveGate(),
            clock=SystemClock(),
            dice=SystemDice(),
            observe=rig.events.append,
        )

        assert await longest_silence(worker) < 1.6


async def test_a_dlq_consumer_whose_broker_is_away_gives_signs_of_life() -> None:
    def handle(letter: DeadLetter) -> None: ...

    async with (rig := Rig()).app:
        engine = await rig.app.engine()
        source: Any = AwaySource(engine.features)
        consumer = DLQConsumer(
            source=source,
            handler=handle,
            gate=ExclusiveGate(),
            clock=SystemClock(),
            dice=SystemDice(),
            observe=rig.events.append,
        )

        assert await longest_silence(consumer) < 1.6


async def test_a_wait_that_is_called_off_leaves_nothing_out_of_reach() -> None:
    async def away() -> None:
        raise Unavailable("nobody answers")

    rig = Rig()
    availability = Availability(
        "orders", context=RuntimeContext(SystemClock(), SystemDice(), rig.events.append)
    )
    waiting = asyncio.create_task(availability.retry_until_available("office", away))
    await eventually(lambda: "office" in availability.down)

    waiting.cancel()
    await asyncio.wait({waiting})

    assert availability.down == {}
