"""Several loops in one process: restarts, stopping, readiness."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from deadletter.core.backoff import Exponential
from deadletter.core.events import Event, LoopDied
from deadletter.runtime import loop_group as kept_alive
from deadletter.runtime.loop_group import LoopGroup
from deadletter.system import SystemClock
from deadletter.testing.fakes import FakeClock, eventually
from group_rig import Body, Turning, running, until_stopped
from output.full_pipe import bounded_output

RESTARTS = kept_alive.AGAIN


def failing(error: BaseException) -> Body:
    async def body(stop: asyncio.Event) -> None:
        raise error

    return body


@pytest.fixture(autouse=True)
def quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_alive, "AGAIN", Exponential(0.01, cap=0.02, jitter=0.0))


async def test_all_loops_run_until_the_group_is_stopped() -> None:
    loops = [Turning(name="a"), Turning(name="b")]

    async with running(*loops) as (group, events, task):
        await eventually(lambda: all(loop.runs for loop in loops))
        group.stop()

        assert await task == 0
        assert events == []


async def test_a_group_stopped_before_it_runs_ends_at_once() -> None:
    group = LoopGroup([Turning()], clock=FakeClock(), observe=print, install_signals=False)
    group.stop()

    assert await group.run() == 0


async def test_any_thread_may_stop_the_group() -> None:
    async with running(Turning()) as (group, _, task):
        await eventually(lambda: not group.complaints())

        threading.Thread(target=group.stop).start()

        assert await asyncio.wait_for(task, 5.0) == 0


@pytest.mark.parametrize(
    "error",
    [RuntimeError("channel closed"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
async def test_a_loop_that_dies_is_started_again_and_told_of(error: BaseException) -> None:
    dying, other = Turning(failing(error), until_stopped), Turning(name="other")

    async with running(dying, other) as (group, events, task):
        await eventually(lambda: dying.runs == 2)

        assert [(e.loop, type(error).__name__ in e.text) for e in events] == [  # type: ignore[attr-defined]
            ("orders", True)
        ]
        assert other.runs == 1
        await eventually(lambda: not group.complaints())
        group.stop()
        assert await task == 0


async def test_a_loop_that_ends_without_being_asked_is_started_again() -> None:
    async def ends(stop: asyncio.Event) -> None:
        return

    loop = Turning(ends, until_stopped)

    async with running(loop) as (_, events, _task):
        await eventually(lambda: loop.runs == 2)

        assert isinstance(events[0], LoopDied)
        assert "without having been asked" in events[0].text


async def test_health_is_red_while_a_dead_loop_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_alive, "AGAIN", Exponential(30.0, cap=30.0, jitter=0.0))
    error = RuntimeError("cannot reach db, password=hunter2")

    async with running(Turning(failing(error))) as (group, events, _):
        await eventually(lambda: events)

        [complaint] = group.complaints()
        assert complaint.loop == "orders"
        assert "starts again in 30 s" in complaint.reason
        assert "hunter2" not in complaint.reason


async def test_restarts_are_further_apart_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Watched(Exponential, frozen=True):
        def delay(self, attempt: int, draw: float) -> float:
            asked.append(attempt)
            return 0.001

    monkeypatch.setattr(kept_alive, "AGAIN", Watched())
    clock = FakeClock()

    async def lasts(stop: asyncio.Event) -> None:
        clock.advance(61.0)
        raise RuntimeError("after a good while")

    dies = failing(RuntimeError("at once"))
    loop = Turning(dies, dies, dies, lasts, until_stopped)

    async with running(loop, clock=clock):
        await eventually(lambda: loop.runs == 5)

    assert asked == [1, 2, 3, 1]


def test_the_real_restarts_go_from_one_second_to_thirty() -> None:
    assert [RESTARTS.delay(n, 0.5) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


async def test_an_observer_that_fails_does_not_stop_the_restart() -> None:
    def observe(event: Event) -> None:
        raise RuntimeError("no logs today")

    loop = Turning(failing(RuntimeError("died")), until_stopped)
    group = LoopGroup([loop], clock=FakeClock(), observe=observe, install_signals=False)
    task = asyncio.create_task(group.run())

    await eventually(lambda: loop.runs == 2)

    group.stop()
    assert await task == 0


async def test_a_loop_that_does_not_end_in_time_is_cancelled_and_told_so() -> None:
    handed_back = asyncio.Event()

    async def stubborn(stop: asyncio.Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            handed_back.set()

    async with running(Turning(stubborn), shutdown_timeout=0.05) as (group, _, task):
        await eventually(lambda: not group.complaints())
        group.stop()

        assert await asyncio.wait_for(task, 5.0) == 1
        assert handed_back.is_set()


async def test_a_loop_that_fails_while_stopping_is_not_a_good_end() -> None:
    async def breaks(stop: asyncio.Event) -> None:
        await stop.wait()
        raise RuntimeError("while settling")

    async with running(Turning(breaks)) as (group, events, task):
        await eventually(lambda: not group.complaints())
        group.stop()

        assert await task == 1
        assert isinstance(events[0], LoopDied)


async def test_cancelling_the_group_cancels_its_loops() -> None:
    ended = asyncio.Event()

    async def working(stop: asyncio.Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with running(Turning(working)) as (group, _, task):
        await eventually(lambda: not group.complaints())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert ended.is_set()


async def test_readiness_fails_before_the_loops_hear_of_the_stop() -> None:
    seen: list[bool] = []

    async def look(stop: asyncio.Event) -> None:
        await stop.wait()
        seen.append(bool(group.complaints()))

    async with running(Turning(look)) as (group, _, task):
        await eventually(lambda: not group.complaints())

        group.stop()

        assert group.complaints()[0].reason == "stopping"
        await task
        assert seen == [True]


async def test_readiness_passes_on_what_a_loop_says() -> None:
    loop = Turning()

    async with running(loop) as (group, _, _task):
        await eventually(lambda: not group.complaints())

        loop.complaint = "office is out of reach: disk full"

        assert group.complaints()[0].reason == "office is out of reach: disk full"


async def test_readiness_survives_a_loop_that_cannot_answer() -> None:
    loop = Turning()

    async with running(loop) as (group, _, _task):
        await eventually(lambda: not group.complaints())
        loop.ready = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]

        assert "ZeroDivisionError" in group.complaints()[0].reason


async def test_a_quiet_heart_fails_readiness_at_half_the_watchdogs_threshold() -> None:
    clock = FakeClock()
    loop = Turning(clock=clock)
    bitten = threading.Event()

    async with running(loop, clock=clock, kill=bitten.set) as (group, _, _task):
        await eventually(lambda: not group.complaints())

        clock.advance(361.0)

        assert "no sign of life for 361" in group.complaints()[0].reason
        assert not bitten.is_set()
        loop.heartbeat.beat()
        assert group.complaints() == []


async def test_the_watchdog_bites_when_a_loop_is_stuck() -> None:
    loop = Turning(clock=SystemClock())
    bitten = threading.Event()

    async with running(
        loop, clock=SystemClock(), kill=bitten.set, watchdog_threshold=0.05, watchdog_interval=0.01
    ) as (_, events, _task):
        await eventually(bitten.is_set)

        assert events[0].loop == "orders"  # type: ignore[attr-defined]


async def test_a_loop_that_waits_to_be_restarted_is_not_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_alive, "AGAIN", Exponential(30.0, cap=30.0, jitter=0.0))
    clock = FakeClock()
    loop = Turning(failing(RuntimeError("died")), clock=clock)

    async with running(loop, clock=clock) as (group, events, _):
        await eventually(lambda: events)
        clock.advance(10_000.0)

        assert group._pulses() == []


async def test_health_is_served_while_the_group_runs() -> None:
    async with running(Turning(), health_port=0) as (group, _, task):
        await eventually(lambda: not group.complaints())

        assert await readiness(group) == {"status": "healthy"}

        group.stop()
        assert await task == 0


async def test_dropped_lines_of_output_are_a_note_of_a_healthy_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bounded_output(monkeypatch) as output:
        output.write(b"x" * 100_000 + b"\n")
        for _ in range(5):
            output.write(b"dropped\n")
        async with running(Turning(), health_port=0) as (group, _, _):
            await eventually(lambda: not group.complaints())
            answer, dropped = await readiness(group), output.dropped

    assert answer["status"] == "healthy"
    (note,) = answer["notes"]
    assert note["loop"] == "output"
    assert note["reason"].startswith(f"{dropped} lines dropped since 20")


async def readiness(group: LoopGroup) -> dict[str, Any]:
    """What a healthy group answers."""
    assert group.health is not None
    reader, writer = await asyncio.open_connection(*group.health.address)
    writer.write(b"GET /health/ready HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    found: dict[str, Any] = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])
    return found
