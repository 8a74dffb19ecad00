"""What the consumer of a dead-letter mailbox does with letters."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from deadletter.core.errors import ConfigError, GiveUp, Ignore, RetryLater
from deadletter.core.events import LeaseLost, LetterHandled, LetterRefused
from deadletter.core.failure import Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery
from deadletter.runtime.loop_group import Loop
from deadletter.system import SystemClock
from deadletter.testing.virtual_time import VirtualClock
from dlq_rig import DLQ, Rig, Wrapped, noting, refusing, virtually


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
    assert [e.message_id for e in rig.seen(LetterHandled)] == ["a", "b"]


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
    assert refused.message_id == "a"
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
async def test_any_error_of_a_handler_fails_its_letter(error: BaseException) -> None:
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
        async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
            return [delivery.message.id == "a" for delivery in deliveries]

    async def slow(letter: DeadLetter) -> None:
        await asyncio.sleep(5.0)
        handled.append(letter.head.message_id)

    rig = Rig(slow, source=Forgetful, visibility_timeout=6.0)
    await rig.put("a", "b")

    await rig.consumer.run_turns(1)

    assert handled == ["a"]


@virtually
async def test_a_lease_that_was_lost_is_told_and_nothing_is_claimed_to_be_done() -> None:
    class Lost(Wrapped):
        async def settle(self, settlements: Sequence[Any]) -> Sequence[bool]:
            return [False for _ in settlements]

    rig = Rig(noting([]), source=Lost)
    await rig.put("a")

    await rig.consumer.run_turns(1)

    assert len(rig.seen(LeaseLost)) == 1
    assert rig.seen(LetterHandled) == []


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
