"""Clients wait for items, and are woken when there are some."""

import asyncio
from datetime import timedelta

import pytest
from msgspec import structs

from deadletter.core.errors import ConfigError, NotFound, Unavailable
from deadletter.queue_server.model import Completion, ItemRetry, LeaseQueue, NewItem, RetryBatch
from deadletter.queue_server.waiting_requests import TryAgain
from queue_server.lending_rig import JOBS, in_virtual_time, lending

DEAD = LeaseQueue(name="dead", lease_timeout=60.0, expire_timeout=3600.0)
MORTAL = structs.replace(JOBS, dead_queue="dead", max_attempts=1)


@in_virtual_time
async def test_available_items_are_leased_at_once() -> None:
    async with lending() as rig:
        await rig.produce(b"1", b"2", b"3")

        leased = await rig.lease(want=2)

        assert [item.payload for item in leased.items] == [b"1", b"2"]
        assert rig.clock.monotonic() < 0.01


@in_virtual_time
async def test_a_produce_wakes_who_waits_at_once() -> None:
    async with lending() as rig:
        waiting = rig.lease(within=900.0)
        await asyncio.sleep(600.0)
        before = rig.clock.monotonic()

        await rig.produce(b"late")

        assert (await waiting).items[0].payload == b"late"
        assert rig.clock.monotonic() == before


@in_virtual_time
async def test_a_produce_of_another_process_wakes_who_waits() -> None:
    async with lending() as rig:
        waiting = rig.lease(within=900.0)
        await asyncio.sleep(1.0)

        await rig.store.produce("jobs", [[NewItem(b"from afar")]])  # and it tells us

        assert (await waiting).items[0].payload == b"from afar"
        assert rig.clock.monotonic() < 1.1


@in_virtual_time
async def test_a_schedule_that_falls_due_wakes_who_waits() -> None:
    async with lending() as rig:
        waiting = rig.lease(within=900.0)
        due = rig.after(120.0)
        await rig.produce(b"later", at=due)

        await waiting

        assert timedelta() <= rig.clock.now() - due < timedelta(milliseconds=50)


@in_virtual_time
async def test_a_second_schedule_is_not_forgotten() -> None:
    async with lending() as rig:
        await rig.produce(b"first", at=rig.after(10.0))
        await rig.produce(b"second", at=rig.after(20.0))

        await rig.leased("one")
        await rig.leased("two")

        assert 20.0 <= rig.clock.monotonic() < 20.1


@in_virtual_time
async def test_a_schedule_made_before_the_start_falls_due() -> None:
    async with lending() as old:
        await old.produce(b"later", at=old.after(10.0))
        await old.lending.stop()

        restarted = type(old.lending)(
            old.store, clock=old.clock, dice=old.dice, observe=old.events.append
        )
        async with restarted:
            leased = await restarted.lease("jobs", "c", 1, within=60.0)

        assert leased.items[0].payload == b"later"


@in_virtual_time
async def test_a_retry_that_falls_due_wakes_who_waits() -> None:
    async with lending() as rig:
        await rig.produce(b"again")
        item = await rig.leased()
        waiting = rig.lease(within=900.0)

        due = rig.after(30.0)
        await rig.lending.retry("jobs", RetryBatch(0, (ItemRetry(item.id, retry_at=due),)))

        again = (await waiting).items[0]
        assert timedelta() <= rig.clock.now() - due < timedelta(milliseconds=50)
        assert (again.payload, again.attempts) == (b"again", 2)


@in_virtual_time
async def test_a_lease_that_runs_out_wakes_who_waits() -> None:
    async with lending() as rig:
        await rig.produce(b"abandoned")
        item = await rig.leased("crashed")
        assert item.lease_deadline is not None

        again = await rig.leased("other", within=900.0)

        late = rig.clock.now() - item.lease_deadline
        assert timedelta() <= late < timedelta(milliseconds=50)
        assert again.attempts == 2


@in_virtual_time
async def test_an_item_is_not_leased_again_before_the_deadline_its_holder_was_told() -> None:
    async with lending() as rig:
        await rig.produce(b"1", b"2")
        held = [await rig.leased("slow")]
        await asyncio.sleep(0.2)
        held.append(await rig.leased("late"))

        again = [await rig.leased(client, within=900.0) for client in ("first", "second")]

        assert [item.payload for item in again] == [b"1", b"2"]
        for before, after in zip(held, again, strict=True):
            assert before.lease_deadline is not None
            waited = after.updated_at - before.lease_deadline
            assert timedelta() <= waited < timedelta(seconds=0.1)


@in_virtual_time
async def test_a_dead_letter_move_wakes_who_waits_for_the_dead_queue() -> None:
    async with lending(DEAD, MORTAL) as rig:
        atomic_burial = rig.lease("atomic_burial", queue="dead", within=900.0)
        await rig.produce(b"dead")
        item = await rig.leased("consumer")
        before = rig.clock.monotonic()

        await rig.lending.retry("jobs", RetryBatch(0, (ItemRetry(item.id),)))

        dead = (await atomic_burial).items[0]
        assert rig.clock.monotonic() == before
        assert (dead.payload, dead.source_id) == (b"dead", item.id)


@in_virtual_time
async def test_an_item_that_dies_by_an_expired_lease_wakes_clients_of_the_dead_queue() -> None:
    async with lending(DEAD, MORTAL) as rig:
        atomic_burial = rig.lease("atomic_burial", queue="dead", within=900.0)
        await rig.produce(b"dead")
        item = await rig.leased("crashed")

        dead = (await atomic_burial).items[0]

        assert item.lease_deadline is not None
        assert rig.clock.now() - item.lease_deadline < timedelta(milliseconds=50)
        assert dead.source_id == item.id


@in_virtual_time
async def test_a_lease_request_that_times_out_is_told_to_try_again() -> None:
    async with lending() as rig:
        with pytest.raises(TryAgain, match="no items are in the queue"):
            await rig.lease(within=30.0)

        assert 30.0 <= rig.clock.monotonic() < 30.1
        assert rig.lending.counts("jobs").lease == 0


@pytest.mark.parametrize(
    ("wants", "available", "shares"),
    [
        ([20, 6, 1], 23, [16, 6, 1]),
        ([10] * 5, 10, [2] * 5),
        ([1000] * 5, 10, [2] * 5),  # far more than one transaction leases
        ([3, 3, 3], 2, [1, 1, 0]),
    ],
)
def test_waiting_clients_share_what_comes(
    wants: list[int], available: int, shares: list[int]
) -> None:
    @in_virtual_time
    async def run() -> None:
        async with lending() as rig:
            waiting = [rig.lease(f"c{n}", want, within=900.0) for n, want in enumerate(wants)]
            await asyncio.sleep(1.0)

            await rig.produce(*[b"%d" % number for number in range(available)])

            served = [one for one, share in zip(waiting, shares, strict=True) if share]
            lent = [(await one).items for one in served]
            assert [len(items) for items in lent] == [share for share in shares if share]
            order = [item.payload for items in lent for item in items]
            assert order == [b"%d" % number for number in range(available)]
            assert not any(one.done() for one in waiting if one not in served)
            for one in waiting:
                one.cancel()

    run()


@in_virtual_time
async def test_who_has_waited_shares_with_who_has_just_come() -> None:
    async with lending() as rig:
        waited = rig.lease("waited", 1000, within=900.0)
        await asyncio.sleep(1.0)
        rig.store.takes = 1.0
        came = rig.lease("came", 1000, within=900.0)
        await asyncio.sleep(0.5)  # the store is being asked for both

        await rig.produce(*[b"x"] * 10)

        assert [len((await one).items) for one in (waited, came)] == [5, 5]


@in_virtual_time
async def test_while_there_is_plenty_each_client_gets_what_it_wants() -> None:
    async with lending() as rig:
        await rig.produce(*[b"x"] * 900)
        await rig.produce(*[b"x"] * 900)

        found = [rig.lease(f"c{n}", 600) for n in range(3)]

        assert [len((await one).items) for one in found] == [600, 600, 600]


@in_virtual_time
async def test_first_come_first_served() -> None:
    async with lending() as rig:
        waiting = [rig.lease(f"c{number}") for number in range(5)]
        for number in range(5):
            await rig.produce(b"%d" % number)

        lent = [(await one).items[0].payload for one in waiting]

        assert lent == [b"0", b"1", b"2", b"3", b"4"]


@in_virtual_time
async def test_many_who_wait_are_all_served_by_one_produce() -> None:
    async with lending() as rig:
        waiting = [rig.lease(f"c{number}") for number in range(350)]
        await asyncio.sleep(1.0)

        await rig.produce(*[b"%d" % number for number in range(350)])

        lent = [(await one).items[0].payload for one in waiting]
        assert lent == [b"%d" % number for number in range(350)]


@in_virtual_time
async def test_a_client_has_one_lease_request_per_queue() -> None:
    async with lending(JOBS, DEAD) as rig:
        first = rig.lease("twin")
        elsewhere = rig.lease("twin", queue="dead")

        with pytest.raises(ConfigError, match="duplicate client id"):
            rig.lease("twin")

        await rig.produce(b"1", b"2")
        await first
        assert (await rig.leased("twin")).payload == b"2"  # it may ask again
        elsewhere.cancel()


@in_virtual_time
async def test_a_disconnected_client_is_leased_nothing() -> None:
    async with lending() as rig:
        gone = rig.lease("gone")
        other = rig.lease("other")
        await asyncio.sleep(1.0)
        gone.cancel()
        await asyncio.sleep(0)

        await rig.produce(b"1")

        assert (await other).items[0].attempts == 1
        assert rig.lending.counts("jobs").lease == 0


@in_virtual_time
async def test_nothing_is_lost_when_the_time_runs_out_while_it_is_being_lent() -> None:
    async with lending() as rig:
        await rig.produce(b"1")
        rig.store.takes = 5.0

        item = await rig.leased(within=1.0)

        assert item.payload == b"1"
        assert rig.clock.monotonic() >= 5.0


@in_virtual_time
async def test_clients_waiting_at_shutdown_are_told_to_try_again() -> None:
    async with lending() as rig:
        waiting = [rig.lease(f"c{number}", within=900.0) for number in range(3)]
        await asyncio.sleep(1.0)

        await rig.lending.stop()

        for one in waiting:
            with pytest.raises(TryAgain, match="queue is shutting down"):
                await one
        with pytest.raises(TryAgain, match="service is shutting down"):
            await rig.produce(b"too late")
        assert rig.clock.monotonic() < 1.1


@in_virtual_time
async def test_transactions_in_progress_at_shutdown_are_finished() -> None:
    async with lending() as rig:
        await rig.produce(b"1")
        rig.store.takes = 2.0
        lease = rig.lease("served", within=900.0)
        produce = asyncio.create_task(rig.produce(b"2"))
        await asyncio.sleep(1.0)

        await rig.lending.stop()

        assert (await lease).items[0].payload == b"1"
        await produce
        rig.store.takes = 0.0
        (left,) = await rig.store.lease("jobs", [1])
        assert left.items[0].payload == b"2"


@in_virtual_time
async def test_clients_served_nothing_at_shutdown_are_told_to_try_again() -> None:
    async with lending() as rig:
        rig.store.takes = 2.0
        waiting = rig.lease("unlucky", within=900.0)
        await asyncio.sleep(1.0)

        await rig.lending.stop()

        with pytest.raises(TryAgain):
            await waiting


@in_virtual_time
async def test_when_a_queue_is_deleted_who_waits_for_it_is_told() -> None:
    async with lending() as rig:
        waiting = [rig.lease(f"c{number}", within=900.0) for number in range(150)]
        await asyncio.sleep(1.0)

        await rig.lending.delete_queue("jobs", force=False)

        for one in waiting:
            with pytest.raises(NotFound):
                await one
        assert rig.clock.monotonic() < 1.1


@in_virtual_time
async def test_trouble_with_the_store_is_told_to_everybody_who_waits() -> None:
    async with lending() as rig:
        waiting = [rig.lease(f"c{number}", within=900.0) for number in range(150)]
        await asyncio.sleep(1.0)

        rig.store.fails = Unavailable("gone fishing")
        rig.lending.look("jobs")

        for one in waiting:
            with pytest.raises(Unavailable):
                await one


@in_virtual_time
async def test_ten_thousand_who_wait_cost_nothing_while_nothing_happens() -> None:
    async with lending() as rig:
        waiting = [rig.lease(f"c{number}", within=900.0) for number in range(10_000)]
        await asyncio.sleep(1.0)
        asked = len(rig.store.asked)

        await asyncio.sleep(800.0)

        assert len(rig.store.asked) == asked
        assert rig.lending.counts("jobs").lease == 10_000
        for one in waiting:
            one.cancel()


@in_virtual_time
async def test_a_completed_item_does_not_come_back() -> None:
    async with lending() as rig:
        await rig.produce(b"done")
        item = await rig.leased()

        await rig.lending.complete("jobs", Completion(0, (item.id,)))

        with pytest.raises(TryAgain):
            await rig.lease(within=890.0)
