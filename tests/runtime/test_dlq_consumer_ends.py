"""How the consumer of a dead-letter mailbox stops, waits and survives."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.events import BackInReach, LetterHandled, LetterRefused, OutOfReach
from deadletter.core.failure import Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery
from deadletter.runtime.deliveries import ExclusiveGate
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from deadletter.testing.virtual_time import VirtualClock
from dlq_rig import DLQ, Rig, Wrapped, noting, virtually


@virtually
async def test_stopping_ends_a_long_poll_at_once() -> None:
    rig = Rig(noting([]), wait=20.0)
    stop = asyncio.Event()
    task = asyncio.create_task(rig.consumer.run(stop))
    await asyncio.sleep(1.0)
    assert rig.consumer.running

    stop.set()
    await task

    assert rig.clock.monotonic() == pytest.approx(1.0)
    assert not rig.consumer.running


@virtually
async def test_stopping_finishes_the_letter_in_hand_and_hands_back_the_rest() -> None:
    handled: list[str] = []

    async def slow(letter: DeadLetter) -> None:
        await asyncio.sleep(5.0)
        handled.append(letter.head.message_id)

    rig = Rig(slow)
    await rig.put("a", "b", "c")
    stop = asyncio.Event()
    task = asyncio.create_task(rig.consumer.run(stop))
    await asyncio.sleep(1.0)

    stop.set()
    await task

    queue = await rig.queue()
    assert handled == ["a"]
    assert (queue.ready, queue.claimed) == (2, 0)
    back = await rig.broker.source(DLQ).receive(limit=9, wait=0.0, lease=1.0)
    assert [delivery.charged for delivery in back] == [1, 1]


@virtually
async def test_a_stop_that_comes_first_polls_nothing() -> None:
    seen: list[str] = []
    rig = Rig(noting(seen))
    await rig.put("a")
    stop = asyncio.Event()
    stop.set()

    await rig.consumer.run(stop)

    assert seen == []


@virtually
async def test_shutdown_waits_for_the_letter_in_hand_and_says_so() -> None:
    async def slow(letter: DeadLetter) -> None:
        await asyncio.sleep(5.0)

    rig = Rig(slow)
    await rig.put("a")
    task = asyncio.create_task(rig.consumer.run_turns())
    await asyncio.sleep(1.0)

    assert await rig.consumer.shutdown(timeout=30.0) is True
    assert rig.clock.monotonic() == pytest.approx(5.0)
    assert task.done()


@virtually
async def test_shutdown_says_when_it_was_not_in_time() -> None:
    async def slow(letter: DeadLetter) -> None:
        await asyncio.sleep(60.0)

    rig = Rig(slow)
    await rig.put("a")
    task = asyncio.create_task(rig.consumer.run_turns())
    await asyncio.sleep(1.0)

    assert await rig.consumer.shutdown(timeout=30.0) is False
    assert rig.consumer.running
    await task
    assert await rig.consumer.shutdown() is True


@virtually
async def test_a_consumer_that_was_shut_down_does_not_start_again() -> None:
    seen: list[str] = []
    rig = Rig(noting(seen))
    await rig.put("a")

    assert await rig.consumer.shutdown() is True
    await rig.consumer.run_turns(1)

    assert seen == []


@virtually
async def test_cancelled_it_hands_back_the_letter_in_hand() -> None:
    async def slow(letter: DeadLetter) -> None:
        await asyncio.sleep(60.0)

    rig = Rig(slow)
    await rig.put("a", "b")
    task = asyncio.create_task(rig.consumer.run(asyncio.Event()))
    await asyncio.sleep(1.0)

    task.cancel()
    await asyncio.wait({task})

    queue = await rig.queue()
    assert task.cancelled()
    assert (queue.ready, queue.claimed) == (2, 0)
    assert rig.seen(LetterRefused) == []


async def test_a_sync_handler_runs_on_a_thread() -> None:
    threads: list[str] = []
    rig = Rig(
        lambda letter: threads.append(threading.current_thread().name),
        clock=SystemClock(),
        wait=0.0,
    )
    await rig.put("a", "b")

    await rig.consumer.run_turns(1)

    assert len(threads) == 2
    assert all(name.startswith("dlq-consumer") for name in threads)


async def test_a_letter_on_a_thread_is_not_handed_back_beside_it() -> None:
    started, release = threading.Event(), threading.Event()

    def hold(letter: DeadLetter) -> None:
        started.set()
        release.wait(5.0)

    rig = Rig(hold, clock=SystemClock(), wait=0.0)
    await rig.put("a", "b")
    task = asyncio.create_task(rig.consumer.run(asyncio.Event()))
    await eventually(started.is_set)

    task.cancel()
    await asyncio.wait({task})

    queue = await rig.queue()
    release.set()
    assert (queue.ready, queue.claimed) == (1, 1)


@virtually
async def test_a_broker_out_of_reach_is_waited_for_and_said_in_readiness() -> None:
    class Away(Wrapped):
        async def receive(self, **more: Any) -> Sequence[Delivery]:
            if clock.monotonic() < 60.0:
                raise Unavailable("connection refused")
            return await self.inner.receive(**more)

    seen: list[str] = []
    clock = VirtualClock()
    rig = Rig(noting(seen), clock=clock, source=Away)
    await rig.put("a")
    task = asyncio.create_task(rig.consumer.run_turns(1))
    await asyncio.sleep(30.0)

    assert rig.consumer.ready() == "broker is out of reach: connection refused"
    await task
    assert seen == ["a"]
    assert rig.consumer.ready() is None
    assert len(rig.seen(OutOfReach)) < 40  # it does not hammer
    assert len(rig.seen(BackInReach)) == 1


@virtually
async def test_an_ack_that_fails_is_tried_again() -> None:
    class Away(Wrapped):
        async def settle(self, settlements: Sequence[Any]) -> Sequence[bool]:
            if clock.monotonic() < 10.0:
                raise Unavailable("connection refused")
            return await self.inner.settle(settlements)

    seen: list[str] = []
    clock = VirtualClock()
    rig = Rig(noting(seen), clock=clock, source=Away, visibility_timeout=3.0)
    await rig.put("a")

    await rig.consumer.run_turns(1)

    assert seen == ["a"]
    assert len(rig.seen(LetterHandled)) == 1


@virtually
async def test_stopping_does_not_wait_for_a_broker_out_of_reach() -> None:
    class Away(Wrapped):
        async def receive(self, **more: Any) -> Sequence[Delivery]:
            raise Unavailable("connection refused")

    rig = Rig(noting([]), source=Away)
    stop = asyncio.Event()
    task = asyncio.create_task(rig.consumer.run(stop))
    await asyncio.sleep(7.0)

    stop.set()
    await task

    assert rig.clock.monotonic() == pytest.approx(7.0)


@virtually
async def test_letters_of_a_consumer_that_died_are_run_alone() -> None:
    seen: list[str] = []
    rig = Rig(noting(seen), wait=0.0)
    await rig.lose("a", "b")

    await rig.consumer.run_turns(1)
    assert len(seen) == 1
    await rig.consumer.run_turns(1)

    assert sorted(seen) == ["a", "b"]


@virtually
async def test_a_letter_that_killed_its_process_twice_has_to_wait() -> None:
    seen: list[str] = []
    rig = Rig(noting(seen), wait=0.0)
    await rig.put("a")
    for alone in (False, True):
        source = rig.broker.source(DLQ)
        [_] = await source.receive(limit=1, wait=0.0, lease=5.0, alone=alone)
        await asyncio.sleep(6.0)
        await rig.broker.sweep()

    await rig.consumer.run_turns(1)

    assert seen == []
    [refused] = rig.seen(LetterRefused)
    assert (refused.failure.trouble, refused.delay) == (Trouble.WORKER_LOST, 3600.0)
    await asyncio.sleep(3601.0)
    await rig.consumer.run_turns(1)
    assert seen == ["a"]  # it gets another chance, once an hour


@virtually
async def test_a_suspect_waits_until_nothing_else_runs_and_the_others_do_not() -> None:
    seen: list[str] = []
    gate = ExclusiveGate()
    rig = Rig(noting(seen), wait=0.0, interval=5.0, gate=gate)
    await rig.lose("a")
    await rig.put("b")
    gate.suspects.add(DLQ)
    gate.enter()  # a worker is at work

    task = asyncio.create_task(rig.consumer.run_turns(30))
    await asyncio.sleep(60.0)
    assert seen == ["b"]

    gate.leave()
    await task
    assert seen == ["b", "a"]
    assert gate.suspects == set()


@virtually
async def test_letters_wait_while_somebody_else_is_alone() -> None:
    seen: list[str] = []
    gate = ExclusiveGate()
    rig = Rig(noting(seen), gate=gate)
    await rig.put("a")

    async with gate.alone("a worker", patience=1.0):
        task = asyncio.create_task(rig.consumer.run_turns(1))
        await asyncio.sleep(100.0)
        assert seen == []

    await task
    assert seen == ["a"]


@virtually
async def test_a_stop_while_waiting_for_solitude_is_heard_at_once() -> None:
    gate = ExclusiveGate()
    rig = Rig(noting([]), wait=0.0, gate=gate)
    await rig.lose("a")
    gate.suspects.add(DLQ)
    gate.enter()
    stop = asyncio.Event()
    before = rig.clock.monotonic()
    task = asyncio.create_task(rig.consumer.run(stop))
    await asyncio.sleep(0.5)

    stop.set()
    await task

    assert rig.clock.monotonic() - before == pytest.approx(0.5)
    assert (await rig.queue()).claimed == 0
    assert not gate.wanted


@virtually
async def test_a_sweep_that_saw_no_suspects_is_believed() -> None:
    asked: list[bool] = []

    class Asked(Wrapped):
        async def receive(self, **more: Any) -> Sequence[Delivery]:
            asked.append(more["alone"])
            return await self.inner.receive(**more)

    rig = Rig(noting([]), source=Asked, wait=0.0, gate=ExclusiveGate())

    await rig.consumer.run_turns(2)

    assert asked == [False, False]


@virtually
async def test_one_consumer_cannot_run_twice_at_once() -> None:
    rig = Rig(noting([]))
    task = asyncio.create_task(rig.consumer.run_turns())
    await asyncio.sleep(1.0)

    with pytest.raises(ConfigError, match="running already"):
        await rig.consumer.run_turns(1)

    await rig.consumer.shutdown()
    await task
