"""Running one delivery while nothing else runs."""

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from deadletter import App
from deadletter.core.events import Event, WorkerStopped
from deadletter.runtime.deliveries import (
    LONGEST_PATIENCE,
    SHORTEST_PATIENCE,
    ExclusiveGate,
    next_wait,
)
from deadletter.testing.virtual_time import SeededDice, VirtualClock, run_virtual
from rig import Rig


async def test_alone_waits_until_nothing_is_in_flight() -> None:
    gate, order = ExclusiveGate(), []
    gate.enter(2)

    async def go_alone() -> None:
        async with gate.alone("a", patience=5) as alone:
            order.append(("alone", alone))

    going = asyncio.create_task(go_alone())
    await asyncio.sleep(0)
    assert gate.wanted
    gate.leave()
    await asyncio.sleep(0)
    order.append(("one left", True))
    gate.leave()
    await going

    assert order == [("one left", True), ("alone", True)]
    assert not gate.wanted


async def test_patience_ends_when_others_take_too_long() -> None:
    gate = ExclusiveGate()
    gate.enter()

    async with gate.alone("a", patience=0.01) as alone:
        assert not alone

    assert not gate.wanted


async def test_only_one_can_be_alone() -> None:
    gate = ExclusiveGate()

    async with gate.alone("a", patience=1) as first, gate.alone("b", patience=1) as second:
        assert (first, second) == (True, False)
        assert gate.wanted


async def test_the_others_wait_until_it_is_over() -> None:
    gate, seen = ExclusiveGate(), []

    async def wait() -> None:
        await gate.until_free(5)
        seen.append(gate.wanted)

    async with gate.alone("a", patience=1):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        assert seen == []
    await waiting

    assert seen == [False]


async def test_waiting_for_freedom_has_an_end() -> None:
    gate = ExclusiveGate()

    async with gate.alone("a", patience=1):
        await gate.until_free(0.01)

        assert gate.wanted


async def test_exclusive_waiters_are_released_at_shutdown() -> None:
    gate, stop = ExclusiveGate(), asyncio.Event()
    gate.enter()
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, stop.set)
    began = loop.time()

    async with gate.alone("a", patience=5, stop=stop) as alone:
        assert not alone

    assert loop.time() - began < 0.9  # at once, and not with the next sign of life
    assert not gate.wanted


async def test_a_stopped_waiter_does_not_enter_the_gate() -> None:
    gate, stop = ExclusiveGate(), asyncio.Event()
    stop.set()

    async with gate.alone("a", patience=5, stop=stop) as alone:
        assert not alone


def test_waiting_to_be_alone_is_a_sign_of_life() -> None:
    beats: list[float] = []

    async def wait() -> None:
        gate, loop = ExclusiveGate(), asyncio.get_running_loop()
        gate.enter()
        beat = lambda: beats.append(loop.time())  # noqa: E731 -- short enough
        async with gate.alone("a", patience=100, beat=beat) as alone:
            assert not alone
        assert loop.time() == 100

    run_virtual(wait())

    gaps = [later - sooner for sooner, later in pairwise([0.0, *beats, 100.0])]
    assert max(gaps) <= 1.0


@given(handler=st.floats(0.0, 1800.0), patience=st.floats(SHORTEST_PATIENCE, LONGEST_PATIENCE))
def test_patience_grows_until_the_longest_handler_is_waited_for(
    handler: float, patience: float
) -> None:
    for _ in range(12):
        if patience < handler:
            patience = next_wait(patience, patience, alone=False)
    after = next_wait(patience, handler, alone=True)

    assert patience >= handler
    assert after >= handler  # the next one need not begin anew
    assert after <= max(SHORTEST_PATIENCE, 2 * handler)


def test_patience_has_an_end() -> None:
    day = 86_400.0

    hour = next_wait(day, day, alone=False)
    longer = next_wait(day, day, alone=False, time_limit=day)

    assert hour == LONGEST_PATIENCE
    assert longer == 2 * day


def test_a_suspect_has_its_turn_though_long_handlers_never_pause() -> None:
    run_virtual(_suspect_behind_long_handlers(), seed=1)


async def _suspect_behind_long_handlers() -> None:
    clock = VirtualClock()
    dice = SeededDice("fair", clock)
    rig, turn = Rig(clock=clock, dice=dice), asyncio.Event()
    exported: list[float] = []

    @rig.app.handler("exports", slots=4, grace=0)
    async def export(body: int) -> None:
        await asyncio.sleep(200 + body % 7 * 15)  # they never end together
        exported.append(clock.monotonic())

    @rig.app.handler("orders", grace=0)
    async def handle(body: bytes) -> None:
        turn.set()

    await rig.app.send("orders", b"suspect")
    engine = await rig.app.engine()
    await engine.broker.source("orders").receive(limit=1, wait=0, lease=5)
    await rig.app.send_many("exports", list(range(1000)))
    async with rig.working():
        await asyncio.wait_for(turn.wait(), 3000)

        assert len(exported) > 10  # the others had their turn too


def test_a_worker_that_waits_to_be_alone_stops_when_told_to() -> None:
    run_virtual(_stopped_while_waiting(), seed=1)


async def _stopped_while_waiting() -> None:
    clock, stop = VirtualClock(), asyncio.Event()
    dice = SeededDice("stop", clock)
    stopped: dict[str, float] = {}

    def observe(event: Event) -> None:
        if isinstance(event, WorkerStopped):
            stopped[event.mailbox] = clock.monotonic()

    app = App("memory://", clock=clock, dice=dice, observe=observe)

    @app.handler("exports", time_limit=None, grace=5000)
    async def export(body: bytes) -> None:
        await asyncio.sleep(1000)

    @app.handler("orders")
    async def handle(body: bytes) -> None: ...

    async with app:
        await app.send("orders", b"suspect")
        engine = await app.engine()
        await engine.broker.source("orders").receive(limit=1, wait=0, lease=5)
        await app.send("exports", b"long")
        work = asyncio.create_task(app.work(stop))
        await asyncio.sleep(600)  # by now it waits for minutes at a time
        stop.set()
        await work

    assert stopped["orders"] < 602
    assert stopped["exports"] > 999
