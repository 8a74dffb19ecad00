"""What lease queues promise about where items are put, and when."""

from datetime import timedelta

from contracts.items_bench import (
    LEASE,
    LIFE,
    ItemsBench,
    a_queue,
    given_back,
    leased,
    listed,
    payloads,
    produced,
)
from deadletter.ports import ItemStore
from deadletter.queue_server.model import NewItem
from deadletter.testing.fakes import FakeClock


class PlacingContract(ItemsBench):
    """Each batch to one partition, each item in its time, and somebody is told."""

    async def test_a_batch_goes_wholly_to_the_least_loaded_partition(
        self, store: ItemStore
    ) -> None:
        await store.create_queue(a_queue(partitions=3))
        sizes = [5, 3, 4, 1, 2, 1]
        await store.produce("orders", [[NewItem(b"x")] * size for size in sizes])

        stats = await store.stats("orders")

        # 5 | 3 | 4, then 1 and 2 to the second: 6, then 1 to the third
        assert [one.total for one in stats] == [5, 6, 5]

    async def test_what_is_leased_is_no_load(self, store: ItemStore) -> None:
        await store.create_queue(a_queue(partitions=2))
        await produced(store, *[b"first"] * 5)
        await produced(store, *[b"second"] * 3)
        assert (await leased(store)).partition == 0

        await produced(store, b"third")

        assert [one.total for one in await store.stats("orders")] == [6, 3]

    async def test_what_is_given_back_or_taken_back_is_load_again(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(partitions=2))
        await produced(store, *[b"first"] * 4)
        await produced(store, *[b"second"] * 3)
        lent = await leased(store)
        await given_back(store, lent.items[:2])
        await self.pass_time(clock, LEASE)
        await store.sweep()

        await produced(store, b"third")

        assert [one.total for one in await store.stats("orders")] == [4, 4]

    async def test_what_is_dead_is_no_load(self, store: ItemStore, clock: FakeClock) -> None:
        await store.create_queue(a_queue(partitions=2))
        await produced(store, *[b"first"] * 3)
        await self.pass_time(clock, 1.0)
        await produced(store, *[b"second"] * 2)
        await self.pass_time(clock, LIFE - 1)
        assert len((await store.sweep()).dead) == 3

        await produced(store, b"third")

        assert [one.total for one in await store.stats("orders")] == [1, 2]

    async def test_a_client_gets_items_of_one_partition_the_oldest_first(
        self, store: ItemStore
    ) -> None:
        await store.create_queue(a_queue(partitions=3))
        await produced(store, b"a", b"a")
        await produced(store, b"b", b"b")
        await produced(store, b"c")

        first, second, third, fourth, fifth = await store.lease("orders", [9, 1, 9, 9, 0])

        assert (first.partition, payloads(first.items)) == (0, [b"a"])
        assert (second.partition, payloads(second.items)) == (1, [b"b"])
        assert (third.partition, payloads(third.items)) == (2, [b"c"])
        assert (fourth.partition, payloads(fourth.items)) == (0, [b"a"])
        assert fifth.items == ()
        assert payloads((await leased(store)).items) == [b"b"]

    async def test_what_is_scheduled_is_lent_when_its_time_has_come(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue())
        at = clock.now() + timedelta(seconds=5)
        await produced(store, b"later", at=at)
        await produced(store, b"now")

        (scheduled,) = await listed(store, scheduled=True)
        swept = await store.sweep()

        assert (scheduled.payload, scheduled.enqueue_at) == (b"later", at)
        assert (swept.next_at, swept.ready) == (at, frozenset())
        assert payloads(await listed(store)) == [b"now"]
        assert payloads((await leased(store)).items) == [b"now"]
        await self.pass_time(clock, 5.0)
        assert (await store.sweep()).ready == {"orders"}
        (item,) = (await leased(store)).items
        assert (item.payload, item.enqueue_at) == (b"later", None)
        assert item.id > scheduled.id

    async def test_what_is_due_in_a_moment_is_due_now(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue())
        soon = clock.now() + timedelta(seconds=0.099)
        await produced(store, b"soon", at=soon)
        await produced(store, b"past", at=clock.now() - timedelta(days=1))
        await produced(store, b"later", at=clock.now() + timedelta(seconds=0.1))

        lent = await leased(store)

        assert payloads(lent.items) == [b"soon", b"past"]
        await given_back(store, lent.items[:1], at=soon)
        await given_back(store, lent.items[1:], at=clock.now() + timedelta(seconds=1))
        assert payloads((await leased(store)).items) == [b"soon"]
        assert payloads(await listed(store, scheduled=True)) == [b"later", b"past"]

    async def test_every_scheduled_time_is_told_one_after_another(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue())
        start = clock.now()
        for seconds in (7.0, 3.0, 5.0):
            at = start + timedelta(seconds=seconds)
            await produced(store, b"%d" % seconds, at=at)

        told = []
        next_at = (await store.sweep()).next_at
        for _ in range(3):
            assert next_at is not None
            told.append((next_at - start).total_seconds())
            await self.pass_time(clock, (next_at - clock.now()).total_seconds())
            next_at = (await store.sweep()).next_at  # of the one that does something

        assert told == [3.0, 5.0, 7.0]
        assert payloads((await leased(store)).items) == [b"3", b"5", b"7"]

    async def test_somebody_is_told_when_there_is_something_to_lease(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        told: list[str] = []
        store.on_ready(told.append)

        await produced(store, b"a", b"b", b"c")
        assert set(told) == {"orders"}
        told.clear()
        a, b, _ = (await leased(store)).items
        assert told == []
        await given_back(store, [a])
        assert set(told) == {"orders"}
        told.clear()
        await given_back(store, [b], dead=True)
        assert "orders-dlq" in told
        told.clear()
        await self.pass_time(clock, LEASE)
        await store.sweep()
        assert set(told) == {"orders"}
