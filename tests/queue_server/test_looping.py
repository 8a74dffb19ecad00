"""A loop that dies is told of, and started again: soon, then less and less often."""

import asyncio
from itertools import pairwise
from typing import Any

from deadletter.core.events import Event, ItemMoved, LoopDied
from deadletter.runtime.loop_group import AGAIN
from queue_server.lending_rig import JOBS, Rig, in_virtual_time, lending


def breaks(rig: Rig, times: int) -> list[float]:
    """Have the sweep die some times; return when it was tried."""
    tried: list[float] = []
    sweep = rig.lending._sweep
    real = sweep._report

    def take_in(swept: Any) -> None:
        tried.append(rig.clock.monotonic())
        if len(tried) <= times:
            raise ValueError("a mistake of ours")
        real(swept)

    sweep._report = take_in  # type: ignore[method-assign]
    return tried


@in_virtual_time
async def test_a_dead_sweep_is_started_again_and_goes_on() -> None:
    async with lending() as rig:
        breaks(rig, 3)
        await rig.produce(b"later", at=rig.after(10.0))

        item = await rig.leased(within=60.0)

        assert item.payload == b"later"
        died = rig.seen(LoopDied)
        assert [event.loop for event in died] == ["sweep"] * 3
        assert "a mistake of ours" in died[0].text


@in_virtual_time
async def test_a_loop_that_is_down_is_reported_as_unhealthy() -> None:
    async with lending() as rig:
        assert rig.lending.problem() is None
        breaks(rig, 2)
        rig.lending.look("jobs")
        await asyncio.sleep(0.01)
        trouble = rig.lending.problem()
        await asyncio.sleep(60.0)

        assert trouble is not None
        assert trouble.startswith("sweep: it died and starts again in 1 s")
        assert "a mistake of ours" in trouble
        assert rig.lending.problem() is None


@in_virtual_time
async def test_a_loop_that_keeps_failing_is_restarted_with_backoff() -> None:
    async with lending() as rig:
        tried = breaks(rig, 10**9)
        rig.lending.look("jobs")
        await asyncio.sleep(3600.0)

        pauses = [after - before for before, after in pairwise(tried)]
        assert AGAIN.cap is not None
        assert pauses[0] < 2.0 < AGAIN.cap <= pauses[-1]
        assert len(tried) < 300
        assert rig.lending.problem() is not None


@in_virtual_time
async def test_an_observer_that_raises_does_not_end_it() -> None:
    async with lending() as rig:

        def observe(event: Event) -> None:
            rig.events.append(event)
            if type(event) in {ItemMoved, LoopDied}:
                raise ValueError("cannot be told")

        for one in (rig.lending, rig.lending._loop):
            one._observe = observe  # type: ignore[attr-defined]
        await rig.store.create_queue(
            type(JOBS)(name="dead", lease_timeout=60.0, expire_timeout=60.0)
        )
        await rig.store.update_queue(
            type(JOBS)(name="jobs", lease_timeout=5.0, expire_timeout=9.0, dead_queue="dead")
        )
        await rig.produce(b"1")
        await asyncio.sleep(20.0)
        await rig.produce(b"2")
        await asyncio.sleep(20.0)

        assert len(await rig.store.items("dead", 0, limit=10)) == 2
        assert rig.seen(LoopDied)
