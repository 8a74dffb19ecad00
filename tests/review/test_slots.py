"""No slot is lost, and none is given away while its handler still runs."""

import asyncio
import threading
from typing import Any

from deadletter import DLQPolicy
from deadletter.core.errors import Refused, Unavailable
from deadletter.core.events import HandlerStuck, LeaseLost, LoopDied, OutOfReach
from deadletter.core.message import Delivery
from deadletter.testing.fakes import eventually
from rig import Rig


async def test_a_suspect_is_not_charged_for_waiting_behind_a_stuck_thread() -> None:
    rig, seen = Rig(), []
    release = threading.Event()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1), slots=1, time_limit=0.1, grace=0.1)
    def handle(delivery: Delivery) -> None:
        if delivery.message.body == b"stuck":
            release.wait(20)
        else:
            seen.append(delivery.charged)

    async with rig.working():
        await rig.app.send("orders", b"stuck")
        await eventually(lambda: len(rig.seen(HandlerStuck)) == 1)
        await rig.app.send("orders", b"innocent")
        engine = await rig.app.engine()
        source = engine.broker.source("orders")
        assert await source.receive(limit=1, wait=1, lease=0.01)
        await asyncio.sleep(1.5)  # time enough to be found, and to be wronged
        release.set()
        await rig.drained("orders")
        letters = await rig.letters()

    assert seen == [1]
    assert [letter.message.body for letter in letters] == [b"stuck"]


async def test_a_thread_whose_lease_is_lost_keeps_its_slot_until_it_ends() -> None:
    rig, running, most = Rig(), 0, 0
    lock, release = threading.Lock(), threading.Event()

    @rig.app.handler("orders", slots=1, lease=0.3, time_limit=None)
    def handle(body: str) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if body == "slow":
            release.wait(20)
        with lock:
            running -= 1

    async with rig.app:
        engine: Any = await rig.app.engine()
        lost = _losing(engine.broker)
        async with rig.working():
            await rig.app.send("orders", "slow")
            await eventually(lambda: running == 1)
            lost.set()
            await asyncio.sleep(0.5)
            lost.clear()
            await rig.app.send("orders", "quick")
            await asyncio.sleep(0.5)
            queue = await rig.queue("orders")
            release.set()
            await rig.drained("orders")

    assert queue.claimed + queue.ready + queue.suspects == 2
    assert queue.claimed <= 1  # the quick one was not fetched to wait for the thread
    assert rig.seen(LeaseLost)


def _losing(broker: Any) -> asyncio.Event:
    """While the event is set every lease is said to be gone."""
    lost = asyncio.Event()
    make = broker.source

    def source(mailbox: str) -> Any:
        found = make(mailbox)
        extend = found.extend

        async def maybe(deliveries: Any, *, lease: float) -> Any:
            if lost.is_set():
                return [False] * len(deliveries)
            return await extend(deliveries, lease=lease)

        found.extend = maybe
        return found

    broker.source = source
    return lost


async def test_an_office_that_breaks_in_an_unknown_way_costs_only_that_letter() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1), lease=0.5, slots=2)
    async def handle(body: str) -> None:
        if body == "bad":
            raise ValueError("no")

    async with rig.app:
        engine: Any = await rig.app.engine()
        keep, calls = engine.letters.keep, 0

        async def broken(letters: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls < 4:
                raise RuntimeError("a mistake in the driver")
            return await keep(letters)

        engine.letters.keep = broken
        async with rig.working():
            await rig.app.send_many("orders", ["bad", "good", "bad", "good", "good"])
            await rig.drained("orders", within=20)
            letters = await rig.letters()

    assert len(letters) == 2
    assert any("mistake" in event.text for event in rig.seen(OutOfReach))


async def test_a_ledger_that_breaks_in_an_unknown_way_costs_no_slots() -> None:
    rig, runs = Rig(), []

    @rig.app.handler("orders", lease=0.5, slots=1, idempotent=True)
    async def handle(body: str) -> None:
        runs.append(body)

    async with rig.app:
        engine: Any = await rig.app.engine()
        begin, calls = engine.ledger.begin, 0

        async def broken(keys: Any, *, lease: float) -> Any:
            nonlocal calls
            calls += 1
            if calls < 2:
                raise RuntimeError("a mistake in the driver")
            return await begin(keys, lease=lease)

        engine.ledger.begin = broken
        async with rig.working():
            await rig.app.send_many("orders", ["a", "b"])
            await rig.drained("orders", within=20)

    assert sorted(runs) == ["a", "b"]


async def test_a_broker_that_refuses_to_hand_out_is_waited_for_like_one_away() -> None:
    rig, runs = Rig(), []

    @rig.app.handler("orders")
    async def handle(body: str) -> None:
        runs.append(body)

    async with rig.app:
        engine: Any = await rig.app.engine()
        _failing(engine.broker, Refused("not today"), times=3)
        async with rig.working():
            await rig.app.send("orders", "a")
            await rig.drained("orders")

    assert runs == ["a"]
    assert rig.seen(LoopDied) == []


async def test_stopping_does_not_wait_for_a_broker_that_is_away() -> None:
    rig = Rig()

    @rig.app.handler("orders", grace=60)
    async def handle(body: str) -> None: ...

    async with rig.app:
        engine: Any = await rig.app.engine()
        _failing(engine.broker, Unavailable("nobody answers"), times=10**9)
        stop = asyncio.Event()
        work = asyncio.create_task(rig.app.work(stop))
        await eventually(lambda: len(rig.seen(OutOfReach)) >= 2)
        stop.set()
        code = await asyncio.wait_for(work, 10)

    assert code == 0


def _failing(broker: Any, error: Exception, *, times: int) -> None:
    """Have the first receives raise."""
    make, failed = broker.source, 0

    def source(mailbox: str) -> Any:
        found = make(mailbox)
        receive = found.receive

        async def maybe(**wanted: Any) -> Any:
            nonlocal failed
            failed += 1
            if failed <= times:
                raise error
            return await receive(**wanted)

        found.receive = maybe
        return found

    broker.source = source
