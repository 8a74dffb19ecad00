"""What falls due is seen to: in time, and not before."""

import asyncio

from msgspec import structs

from deadletter.core.errors import Unavailable
from deadletter.core.events import (
    BackInReach,
    ClockJumped,
    ItemDeleted,
    ItemMoved,
    LoopDied,
    OutOfReach,
)
from deadletter.queue_server.model import ItemRetry, LeaseQueue, RetryBatch
from queue_server.lending_rig import JOBS, in_virtual_time, lending

DEAD = LeaseQueue(name="dead", lease_timeout=60.0, expire_timeout=3600.0)


@in_virtual_time
async def test_an_empty_store_is_not_swept() -> None:
    async with lending() as rig:
        await asyncio.sleep(86_400.0)

        assert rig.store.times("sweep") == [1]


@in_virtual_time
async def test_a_store_with_items_is_swept_at_intervals() -> None:
    async with lending() as rig:
        await rig.produce(b"1")
        await asyncio.sleep(1000.0)

        # Another server may have leased it and died: once in ten seconds.
        assert 95 <= len(rig.store.times("sweep")) <= 105


@in_virtual_time
async def test_a_deleted_item_is_a_warning_with_the_true_reason() -> None:
    short = structs.replace(JOBS, lease_timeout=5.0, expire_timeout=20.0)
    async with lending(structs.replace(short, max_attempts=1)) as rig:
        await rig.produce(b"exhausted")
        exhausted = await rig.leased("crashed")
        await asyncio.sleep(10.0)
        await rig.produce(b"asked")
        asked = await rig.leased()
        await rig.lending.retry("jobs", RetryBatch(0, (ItemRetry(asked.id, dead=True),)))
        await rig.produce(b"expired")
        await asyncio.sleep(30.0)

        deaths = {event.item_id: event.death for event in rig.seen(ItemDeleted)}

        assert deaths.pop(exhausted.id) == "attempts"
        assert deaths.pop(asked.id) == "asked"
        assert list(deaths.values()) == ["expired"]
        assert rig.seen(ItemMoved) == []


@in_virtual_time
async def test_a_moved_item_is_told_with_its_new_queue() -> None:
    mortal = structs.replace(JOBS, expire_timeout=60.0, dead_queue="dead")
    async with lending(DEAD, mortal) as rig:
        await rig.produce(b"1")
        (item,) = await rig.store.items("jobs", 0, limit=1)
        await asyncio.sleep(61.1)

        (event,) = rig.seen(ItemMoved)
        told = (event.mailbox, event.item_id, event.death, event.to)
        assert told == ("jobs", item.id, "expired", "dead")
        assert rig.seen(ItemDeleted) == []


@in_virtual_time
async def test_the_sweep_continues_after_the_store_was_unreachable() -> None:
    async with lending() as rig:
        await rig.produce(b"later", at=rig.after(10.0))
        rig.store.fails = Unavailable("gone fishing")
        await asyncio.sleep(60.0)
        rig.store.fails = None

        item = await rig.leased(within=60.0)

        assert item.payload == b"later"
        assert rig.seen(OutOfReach)[0].text == "gone fishing"
        assert len(rig.seen(OutOfReach)) < 30
        assert len(rig.seen(BackInReach)) == 1


@in_virtual_time
async def test_a_mistake_of_ours_does_not_end_it() -> None:
    async with lending() as rig:
        await rig.produce(b"later", at=rig.after(10.0))
        rig.store.fails = ZeroDivisionError("oops")
        await asyncio.sleep(30.0)
        rig.store.fails = None

        assert (await rig.leased(within=60.0)).payload == b"later"
        assert "oops" in rig.seen(LoopDied)[0].text


@in_virtual_time
async def test_a_store_whose_clock_is_behind_is_not_asked_without_end() -> None:
    async with lending() as rig:
        await rig.produce(b"later", at=rig.after(10.0))
        await asyncio.sleep(5.0)
        rig.lending._sweep._clock = ahead = type(rig.clock)()
        ahead.step(4.0)
        before = len(rig.store.times("sweep"))

        item = await rig.leased(within=60.0)

        assert item.payload == b"later"
        assert len(rig.store.times("sweep")) - before < 30


@in_virtual_time
async def test_more_than_one_turn_can_do_is_done_in_several() -> None:
    async with lending() as rig:
        due = rig.after(60.0)
        for _ in range(3):
            await rig.produce(*[b"1"] * 900, at=due)

        leased = [await rig.lease(f"c{n}", want=900, within=90.0) for n in range(3)]

        assert sum(len(one.items) for one in leased) == 2700
        assert rig.clock.monotonic() < 60.5


@in_virtual_time
async def test_leases_written_by_a_clock_that_was_ahead_end_when_they_should() -> None:
    async with lending() as rig:
        await rig.produce(b"1")
        rig.clock.step(1800.0)
        await rig.leased("crashed")
        rig.clock.step(-1800.0)

        again = await rig.leased("patient", within=100.0)

        assert (again.payload, again.attempts) == (b"1", 2)
        (jump,) = rig.seen(ClockJumped)
        assert jump.shortened == 1
        assert 1780 < jump.ahead <= 1800
