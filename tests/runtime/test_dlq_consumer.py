"""The consumer of a dead-letter mailbox, mostly in virtual time."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any

import pytest

from deadletter.backends.memory import MemoryEngine
from deadletter.core.errors import (
    ConfigError,
    GiveUp,
    Ignore,
    RetryLater,
    Unavailable,
)
from deadletter.core.events import (
    BackInReach,
    Event,
    LeaseLost,
    LetterHandled,
    LetterRefused,
    OutOfReach,
)
from deadletter.core.failure import Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message
from deadletter.ports import Clock, QueueInfo, Source
from deadletter.runtime.dlq_consumer import DLQConsumer
from deadletter.runtime.loop import Loop
from deadletter.runtime.solitude import Solitude
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice
from deadletter.testing.virtual_loop import run_virtual
from deadletter.testing.virtual_time import VirtualClock
from deadletter.testing.waiting import eventually

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


@virtually
async def test_a_handled_letter_is_gone_and_told_of() -> None:
    seen: list[str] = []
    rig = Rig(noting(seen))
    await rig.put("a", "b")
    await asyncio.sleep(40.0)

    await rig.consumer.run_turns(1)

    queue = await rig.queue()
    assert seen == ["a", "b"]
    assert (queue.ready, queue.claimed, queue.delayed) == (0, 0, 0)
    assert [(e.action, e.age, e.mailbox) for e in rig.seen(LetterHandled)] == [
        ("processed", 40.0, DLQ)
    ] * 2


@virtually
async def test_a_handler_may_say_what_it_did() -> None:
    answers = iter(["replayed", "discarded", "made tea", None])

    async def handle(letter: DeadLetter) -> str | None:
        return next(answers)

    rig = Rig(handle)
    await rig.put("a", "b", "c", "d")

    await rig.consumer.run_turns(1)

    assert [e.action for e in rig.seen(LetterHandled)] == [
        "replayed",
        "discarded",
        "processed",
        "processed",
    ]


@virtually
async def test_a_refused_letter_waits_an_hour_where_it_is() -> None:
    rig = Rig(refusing)
    await rig.put("a")
    started = rig.clock.monotonic()

    await rig.consumer.run_turns(1)

    [refused] = rig.seen(LetterRefused)
    assert (refused.delay, refused.failure.trouble) == (3600.0, Trouble.TRANSIENT)
    assert (await rig.queue()).delayed == 1
    assert rig.seen(LetterHandled) == []
    source = rig.broker.source(DLQ)
    [again] = await source.receive(limit=1, wait=4000.0, lease=1.0)
    assert rig.clock.monotonic() - started == pytest.approx(3600.0, abs=1.0)
    assert "nobody is there" in again.history


@virtually
async def test_zero_seconds_are_zero_and_not_the_default() -> None:
    rig = Rig(refusing, on_failure=0.0)
    await rig.put("a")

    await rig.consumer.run_turns(3)

    assert [e.delay for e in rig.seen(LetterRefused)] == [0.0, 0.0, 0.0]


@virtually
async def test_a_visibility_of_zero_is_zero_and_none_is_the_default() -> None:
    asked: list[float] = []

    class Asked(Wrapped):
        async def receive(self, **more: Any) -> Sequence[Delivery]:
            asked.append(more["lease"])
            return await self.inner.receive(**more)

    rig = Rig(noting([]), source=Asked, wait=0.0)

    await rig.consumer.run_turns(1, visibility_timeout=0.0)
    await rig.consumer.run_turns(1, visibility_timeout=7.0)
    await rig.consumer.run_turns(1)

    assert asked == [0.0, 0.0, 7.0, 7.0, 300.0, 300.0]


@virtually
async def test_a_letter_is_never_dead_lettered_again_however_often_it_fails() -> None:
    rig = Rig(refusing, on_failure=1.0)
    await rig.put("a")

    await rig.consumer.run_turns(50)

    queue = await rig.queue()
    assert len(rig.seen(LetterRefused)) == 50
    assert queue.ready + queue.delayed == 1
    assert len(await rig.broker.queues()) == 1


@virtually
async def test_failures_may_be_thrown_away() -> None:
    rig = Rig(refusing, discard_failures=True)
    await rig.put("a")

    await rig.consumer.run_turns(1)

    queue = await rig.queue()
    assert (queue.ready, queue.delayed, queue.claimed) == (0, 0, 0)
    assert [e.action for e in rig.seen(LetterHandled)] == ["discarded"]
    assert rig.seen(LetterRefused)[0].failure.text == "nobody is there"


@virtually
async def test_a_handler_has_a_say_in_when_a_letter_comes_back() -> None:
    asked = iter([RetryLater(5.0), GiveUp("hopeless"), Ignore("nothing to do")])

    async def handle(letter: DeadLetter) -> None:
        raise next(asked)

    rig = Rig(handle)
    await rig.put("a", "b", "c")

    await rig.consumer.run_turns(1)

    assert [e.delay for e in rig.seen(LetterRefused)] == [5.0, 3600.0]
    assert len(rig.seen(LetterHandled)) == 1


@pytest.mark.parametrize(
    "error",
    [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_handler_raises_is_the_letters_failure(
    error: BaseException,
) -> None:
    async def handle(letter: DeadLetter) -> None:
        raise error

    rig = Rig(handle, clock=SystemClock(), wait=0.0)
    await rig.put("a", "b")

    await rig.consumer.run_turns(1)

    assert len(rig.seen(LetterRefused)) == 2


@virtually
async def test_turns_count_polls_and_not_letters() -> None:
    seen: list[str] = []
    rig = Rig(noting(seen), batch=10, wait=0.0)
    await rig.put(*(str(n) for n in range(25)))

    await rig.consumer.run_turns(2)
    assert len(seen) == 20

    await rig.consumer.run_turns(1)
    assert len(seen) == 25

    await rig.consumer.run_turns(0)
    assert len(seen) == 25


@virtually
async def test_an_empty_mailbox_is_polled_as_long_as_asked() -> None:
    rig = Rig(noting([]), wait=20.0)
    started = rig.clock.monotonic()

    await rig.consumer.run_turns(2)

    assert rig.clock.monotonic() - started == pytest.approx(40.0)


@virtually
async def test_polls_start_an_interval_apart_and_never_overlap() -> None:
    polls: list[tuple[float, float]] = []

    class Timed(Wrapped):
        async def receive(self, **more: Any) -> Sequence[Delivery]:
            start = clock.monotonic()
            found = await self.inner.receive(**more)
            if not more["alone"]:
                polls.append((start, clock.monotonic()))
            return found

    async def slow(letter: DeadLetter) -> None:
        await asyncio.sleep(4.0 if letter.head.message_id == "quick" else 25.0)

    clock = VirtualClock()
    rig = Rig(slow, clock=clock, source=Timed, interval=10.0, wait=1.0, batch=1)
    await rig.put("quick", "slow", "quick")

    await rig.consumer.run_turns(4)

    starts = [start for start, _ in polls]
    assert starts == pytest.approx([0.0, 10.0, 35.0, 45.0])


@virtually
async def test_the_heart_beats_every_turn_and_every_letter_and_while_resting() -> None:
    rig = Rig(noting([]), wait=0.0, interval=3600.0)
    beats: list[float] = []
    rig.consumer.heartbeat.add_callback(lambda: beats.append(rig.clock.monotonic()))
    await rig.put("a", "b", "c")

    await rig.consumer.run_turns(2)

    assert len([beat for beat in beats if beat < 1.0]) >= 4
    gaps = [after - before for before, after in pairwise(beats)]
    assert max(gaps) <= 10.0


@virtually
async def test_a_long_handler_keeps_its_letter_and_those_that_wait() -> None:
    handled: list[str] = []

    async def slow(letter: DeadLetter) -> None:
        await asyncio.sleep(50.0)
        handled.append(letter.head.message_id)

    rig = Rig(slow, visibility_timeout=10.0)
    await rig.put("a", "b", "c")

    working = asyncio.create_task(rig.consumer.run_turns(1))
    for _ in range(140):
        await asyncio.sleep(1.0)
        assert (await rig.broker.sweep()).lost == 0
    await working

    assert handled == ["a", "b", "c"]
    assert rig.seen(LeaseLost) == []


@virtually
async def test_a_letter_somebody_else_has_by_now_is_not_started() -> None:
    handled: list[str] = []

    class Forgetful(Wrapped):
        async def extend(
            self, deliveries: Sequence[Delivery], *, lease: float
        ) -> Sequence[bool]:
            return [delivery.message.id == "a" for delivery in deliveries]

    async def slow(letter: DeadLetter) -> None:
        await asyncio.sleep(5.0)
        handled.append(letter.head.message_id)

    rig = Rig(slow, source=Forgetful, visibility_timeout=6.0)
    await rig.put("a", "b")

    await rig.consumer.run_turns(1)

    assert handled == ["a"]


@virtually
async def test_a_lease_that_was_lost_is_told_and_nothing_is_claimed_to_be_done() -> (
    None
):
    class Lost(Wrapped):
        async def settle(self, settlements: Sequence[Any]) -> Sequence[bool]:
            return [False for _ in settlements]

    rig = Rig(noting([]), source=Lost)
    await rig.put("a")

    await rig.consumer.run_turns(1)

    assert len(rig.seen(LeaseLost)) == 1
    assert rig.seen(LetterHandled) == []


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
    solitude = Solitude()
    rig = Rig(noting(seen), wait=0.0, interval=5.0, solitude=solitude)
    await rig.lose("a")
    await rig.put("b")
    solitude.suspects.add(DLQ)
    solitude.enter()  # a worker is at work

    task = asyncio.create_task(rig.consumer.run_turns(30))
    await asyncio.sleep(60.0)
    assert seen == ["b"]

    solitude.leave()
    await task
    assert seen == ["b", "a"]
    assert solitude.suspects == set()


@virtually
async def test_letters_wait_while_somebody_else_is_alone() -> None:
    seen: list[str] = []
    solitude = Solitude()
    rig = Rig(noting(seen), solitude=solitude)
    await rig.put("a")

    async with solitude.alone("a worker", patience=1.0):
        task = asyncio.create_task(rig.consumer.run_turns(1))
        await asyncio.sleep(100.0)
        assert seen == []

    await task
    assert seen == ["a"]


@virtually
async def test_a_stop_while_waiting_for_solitude_is_heard_at_once() -> None:
    solitude = Solitude()
    rig = Rig(noting([]), wait=0.0, solitude=solitude)
    await rig.lose("a")
    solitude.suspects.add(DLQ)
    solitude.enter()
    stop = asyncio.Event()
    before = rig.clock.monotonic()
    task = asyncio.create_task(rig.consumer.run(stop))
    await asyncio.sleep(0.5)

    stop.set()
    await task

    assert rig.clock.monotonic() - before == pytest.approx(0.5)
    assert (await rig.queue()).claimed == 0
    assert not solitude.wanted


@virtually
async def test_a_sweep_that_saw_no_suspects_is_believed() -> None:
    asked: list[bool] = []

    class Asked(Wrapped):
        async def receive(self, **more: Any) -> Sequence[Delivery]:
            asked.append(more["alone"])
            return await self.inner.receive(**more)

    rig = Rig(noting([]), source=Asked, wait=0.0, solitude=Solitude())

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


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"wait": -1.0}, {"on_failure": -1.0}, {"interval": -0.1}]
)
def test_nonsense_is_refused_at_the_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="orders-dlq"):
        Rig(noting([]), clock=SystemClock(), **wrong)


def test_a_consumer_is_a_loop() -> None:
    loop: Loop = Rig(noting([]), clock=SystemClock()).consumer

    assert loop.name == "dlq consumer orders-dlq"
    assert loop.ready() is None


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

    async def extend(
        self, deliveries: Sequence[Delivery], *, lease: float
    ) -> Sequence[bool]:
        return await self.inner.extend(deliveries, lease=lease)
