"""What a worker holds at once, for how long, and when it lets go."""

import asyncio
import threading

import msgspec
import pytest

from deadletter import BrakePolicy, Context, DLQPolicy, Fixed, NoBackoff
from deadletter.core.errors import ConfigError
from deadletter.core.events import (
    BrakeClosed,
    BrakeOpened,
    HandlerNoted,
    HandlerStuck,
    Retried,
    Succeeded,
)
from deadletter.testing.fakes import eventually
from rig import Rig

QUICK = DLQPolicy(max_attempts=3, backoff=NoBackoff())


async def test_sync_handlers_run_beside_each_other() -> None:
    rig = Rig()
    together = threading.Barrier(3)

    @rig.app.handler("orders", slots=3)
    def handle(body: bytes) -> None:
        together.wait(timeout=5)

    async with rig.working():
        await rig.app.send_many("orders", [b"a", b"b", b"c"])
        await rig.drained("orders")

        assert len(rig.seen(Succeeded)) == 3


async def test_notes_of_handlers_are_told_before_their_end() -> None:
    rig = Rig()

    @rig.app.handler("orders")
    async def handle(body: bytes, context: Context) -> None:
        context.progress({"done": 1})
        context.log("a line")

    @rig.app.handler("threads")
    def handle_there(body: bytes, context: Context) -> None:
        context.log("from a thread")
        with pytest.raises(ConfigError, match="progress must be a number"):
            context.progress(object())

    async with rig.working():
        await rig.app.send("orders", b"a")
        await rig.app.send("threads", b"b")
        await rig.drained("orders")
        await rig.drained("threads")

    notes = {(one.mailbox, one.progress, one.text) for one in rig.seen(HandlerNoted)}
    assert notes == {
        ("orders", '{"done":1}', ""),
        ("orders", "", "a line"),
        ("threads", "", "from a thread"),
    }


async def test_no_more_handlers_run_than_there_are_slots() -> None:
    rig, running, most = Rig(), 0, 0

    @rig.app.handler("orders", slots=4)
    async def handle(body: bytes) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async with rig.working():
        await rig.app.send_many("orders", [b"x"] * 60)
        await rig.drained("orders")

    assert most == 4


async def test_bodies_in_flight_are_bounded_by_bytes() -> None:
    rig, running, most = Rig(), 0, 0
    registered = rig.app.handler("orders", slots=100)

    async def handle(body: bytes) -> None:
        nonlocal running, most
        running += len(body)
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= len(body)

    registered(handle)
    held = rig.app._handlers["orders"]
    rig.app._handlers["orders"] = msgspec.structs.replace(
        held, options=msgspec.structs.replace(held.options, max_bytes=100_000)
    )

    async with rig.working():
        await rig.app.send_many("orders", [b"x" * 10_000] * 100)
        await rig.drained("orders")

    assert most <= 200_000


async def test_an_overdue_handler_is_stopped_and_retried() -> None:
    rig = Rig()
    waits = iter([5.0, 0.0])

    @rig.app.handler("orders", policy=QUICK, time_limit=0.4)
    async def handle(body: bytes) -> None:
        await asyncio.sleep(next(waits))

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")

        (retried,) = rig.seen(Retried)
        assert "time limit" in retried.failure.text
        assert len(rig.seen(Succeeded)) == 1


async def test_a_stuck_thread_loses_its_slot_and_not_the_worker() -> None:
    rig = Rig()
    release = threading.Event()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1), slots=2, time_limit=0.1, grace=0.1)
    def handle(body: str) -> None:
        if body == "stuck":
            release.wait(20)

    async with rig.working():
        await rig.app.send("orders", "stuck")
        await eventually(lambda: len(rig.seen(HandlerStuck)) == 1)
        await rig.app.send_many("orders", ["a", "b", "c"])
        await rig.drained("orders")

        (letter,) = await rig.letters()
        assert "time limit" in letter.head.error_text
        assert len(rig.seen(Succeeded)) == 3
        release.set()


async def test_an_outage_stops_fetching_and_charges_nobody() -> None:
    rig, down, tried = Rig(), True, 0

    @rig.app.handler(
        "orders",
        policy=DLQPolicy(max_attempts=2, backoff=Fixed(0.05)),
        brake=BrakePolicy(threshold=5, probe_after=0.05, cap=0.1),
        slots=5,
    )
    async def handle(body: bytes) -> None:
        nonlocal tried
        tried += 1
        if down:
            raise ConnectionRefusedError("downstream is down")

    async with rig.working():
        await rig.app.send_many("orders", [b"x"] * 50)
        await eventually(lambda: len(rig.seen(BrakeOpened)) == 1)
        before = tried
        await asyncio.sleep(0.5)
        probes = tried - before
        down = False
        await rig.drained("orders", within=30)

        assert probes < 15  # a few probes, not a flood
        assert await rig.letters() == []
        assert len(rig.seen(Succeeded)) == 50
        assert len(rig.seen(BrakeClosed)) == 1


async def test_stopping_waits_for_what_is_running() -> None:
    rig, ended = Rig(), []
    started = asyncio.Event()

    @rig.app.handler("orders")
    async def handle(body: bytes) -> None:
        started.set()
        await asyncio.sleep(0.2)
        ended.append(body)

    async with rig.app:
        stop = asyncio.Event()
        work = asyncio.create_task(rig.app.work(stop))
        await rig.app.send("orders", b"x")
        await started.wait()
        stop.set()
        assert await work == 0

        assert ended == [b"x"]
        assert (await rig.queue("orders")).tally["handled"] == 1


async def test_handlers_that_exceed_the_grace_period_are_released_uncharged() -> None:
    rig = Rig()
    started = asyncio.Event()

    @rig.app.handler("orders", grace=0.05)
    async def handle(body: bytes) -> None:
        started.set()
        await asyncio.sleep(60)

    async with rig.app:
        stop = asyncio.Event()
        work = asyncio.create_task(rig.app.work(stop))
        await rig.app.send("orders", b"x")
        await started.wait()
        stop.set()
        await work

        engine = await rig.app.engine()
        (again,) = await engine.broker.source("orders").receive(limit=1, wait=1, lease=10)
        assert (again.attempt, again.charged) == (2, 1)
