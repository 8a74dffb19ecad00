"""What lease queues promise about looking into them, and about bringing items in."""

from datetime import timedelta

import pytest
from msgspec import structs

from contracts.items_bench import (
    LEASE,
    LIFE,
    ItemsBench,
    a_queue,
    an_item,
    completed,
    leased,
    listed,
    payloads,
    produced,
)
from deadletter.core.errors import ConfigError, NotFound
from deadletter.ports import ItemStore
from deadletter.queue_server.model import NewItem, PartitionStats
from deadletter.testing.fakes import FakeClock


class KeepingContract(ItemsBench):
    """What is in a queue can be seen, brought in and cleared away."""

    async def test_items_are_listed_from_a_pivot_on(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())
        await produced(store, *(b"%d" % i for i in range(10)))
        lent = (await leased(store, 4)).items
        every = await listed(store)
        assert payloads(every) == [b"%d" % i for i in range(10)]

        some = await store.items("orders", 0, pivot=every[2].id, limit=4)
        await completed(store, [lent[2].id])
        rest = await store.items("orders", 0, pivot=every[2].id, limit=4)

        assert some == every[2:6]
        assert rest == every[3:7]
        with pytest.raises(ConfigError, match="pivot"):
            await store.items("orders", 0, pivot="nonsense", limit=4)

    async def test_many_items_are_listed_like_few(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())
        sent = [b"%d" % i for i in range(2_500)]
        await produced(store, *sent)

        every = await store.items("orders", 0, limit=65_536)
        some = await store.items("orders", 0, pivot=every[300].id, limit=2_000)

        assert payloads(every) == sent
        assert some == every[300:2_300]

    async def test_scheduled_items_are_listed_by_themselves(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue())
        for i in range(5):
            at = clock.now() + timedelta(seconds=10 - i)
            await produced(store, b"%d" % i, at=at)

        every = await listed(store, scheduled=True)
        some = await store.items("orders", 0, pivot=every[1].id, limit=2, scheduled=True)

        assert payloads(every) == [b"%d" % i for i in range(5)]
        assert payloads(some) == [b"1", b"2"]
        assert await listed(store) == []

    async def test_a_partition_that_is_not_there_is_not_found(self, store: ItemStore) -> None:
        await store.create_queue(a_queue(partitions=2))

        for partition in (-1, 2):
            with pytest.raises(NotFound, match="partition"):
                await store.items("orders", partition, limit=1)
            with pytest.raises(NotFound, match="partition"):
                await store.import_items("orders", partition, [])
            with pytest.raises(NotFound, match="partition"):
                await store.delete_items("orders", partition, [])

    async def test_stats_tell_what_is_there_and_how_old_it_is(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(partitions=2))
        await produced(store, b"a", b"b")
        await self.pass_time(clock, 4.0)
        await leased(store, 1)
        await self.pass_time(clock, 2.0)
        await produced(store, b"c", b"d")
        await produced(store, b"e", at=clock.now() + timedelta(seconds=5))

        assert await store.stats("orders") == [
            PartitionStats(
                partition=0, total=2, leased=1, scheduled=1, average_age=6.0, average_leased_age=2.0
            ),
            PartitionStats(partition=1, total=2),
        ]

    async def test_items_are_imported_as_they_are(self, store: ItemStore, clock: FakeClock) -> None:
        await store.create_queue(a_queue(max_attempts=9))
        now = clock.now()
        plain = an_item(now - timedelta(days=1), b"plain", "abc\0é")
        brought = [
            structs.replace(plain, reference="r", encoding="e", kind="k", attempts=3),
            structs.replace(
                an_item(now, b"leased"),
                is_leased=True,
                attempts=1,
                lease_deadline=now + timedelta(seconds=3),
                expire_deadline=now + timedelta(seconds=50),
            ),
            structs.replace(an_item(now, b"later"), enqueue_at=now + timedelta(seconds=7)),
        ]

        added = await store.import_items("orders", 0, brought)

        life = now + timedelta(seconds=LIFE)
        expected = [
            structs.replace(
                item, id=new.id, max_attempts=9, expire_deadline=item.expire_deadline or life
            )
            for item, new in zip(brought, added, strict=True)
        ]
        assert list(added) == expected
        assert await listed(store) == expected[:2]
        assert await listed(store, scheduled=True) == expected[2:]
        assert payloads((await leased(store)).items) == [b"plain"]
        assert (await store.sweep()).next_at == now + timedelta(seconds=3)
        assert await completed(store, [added[1].id]) is None

    async def test_the_same_source_id_is_imported_once(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(partitions=2))
        item = an_item(clock.now(), b"a", "abc")
        other = an_item(clock.now(), b"b", "abd")

        first = await store.import_items("orders", 0, [item, item])
        again = await store.import_items("orders", 1, [item, other])

        assert (payloads(first), payloads(again)) == ([b"a"], [b"b"])
        assert [one.total for one in await store.stats("orders")] == [1, 1]
        assert [one.source_id for one in await listed(store)] == ["abc"]

    async def test_what_is_imported_dead_is_not_lent_but_moved(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store, max_attempts=2)
        now = clock.now()
        spent = structs.replace(an_item(now, b"spent"), attempts=2)
        late = structs.replace(an_item(now, b"late"), expire_deadline=now)
        await store.import_items("orders", 0, [spent, late, an_item(now, b"good")])

        lent = await leased(store)
        swept = await store.sweep()

        assert payloads(lent.items) == [b"good"]
        assert sorted(one.death for one in swept.dead) == ["attempts", "expired"]
        assert sorted(payloads(await listed(store, "orders-dlq"))) == [b"late", b"spent"]

    async def test_items_are_deleted_by_id(self, store: ItemStore, clock: FakeClock) -> None:
        await store.create_queue(a_queue(partitions=2))
        await produced(store, b"leased", b"waits", b"stays")
        await produced(store, b"other")
        await produced(store, b"later", at=clock.now() + timedelta(seconds=9))
        (lent,) = (await leased(store, 1)).items
        ids = [item.id for item in await listed(store)][:2]
        later = await listed(store, scheduled=True, partition=1)
        other = await listed(store, partition=1)
        meant = [*ids, ids[0], "nonsense", "f" * 16, other[0].id]

        assert await store.delete_items("orders", 0, meant) == 2
        assert await store.delete_items("orders", 1, [later[0].id]) == 1

        assert lent.id in ids
        assert payloads(await listed(store)) == [b"stays"]
        await produced(store, b"new")
        assert [one.total for one in await store.stats("orders")] == [2, 1]

    @pytest.mark.parametrize(
        ("waiting", "scheduled", "destructive", "left"),
        [
            (True, False, False, [b"leased", b"later"]),
            (False, True, False, [b"leased", b"waits"]),
            (True, True, False, [b"leased"]),
            (True, False, True, [b"later"]),
            (False, True, True, [b"leased", b"waits"]),
            (True, True, True, []),
        ],
    )
    async def test_a_queue_is_cleared_of_what_was_meant(
        self,
        store: ItemStore,
        clock: FakeClock,
        *,
        waiting: bool,
        scheduled: bool,
        destructive: bool,
        left: list[bytes],
    ) -> None:
        await store.create_queue(a_queue())
        await store.create_queue(a_queue("other"))
        await produced(store, b"other", queue="other")
        await produced(store, b"leased", b"waits")
        await produced(store, b"later", at=clock.now() + timedelta(seconds=9))
        await leased(store, 1)

        gone = await store.clear(
            "orders", waiting=waiting, scheduled=scheduled, destructive=destructive
        )

        there = [*await listed(store), *await listed(store, scheduled=True)]
        assert payloads(there) == left
        assert gone == 3 - len(left)
        assert len(await listed(store, "other")) == 1

    async def test_after_all_that_the_least_loaded_partition_is_still_known(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store, max_attempts=1)
        await store.update_queue(a_queue(dead_queue="orders-dlq", max_attempts=1, partitions=2))
        await store.produce("orders", [[NewItem(b"x")] * 6] * 2)
        for _ in range(2):
            lent = await leased(store, 2)
            await completed(store, [lent.items[0].id], partition=lent.partition)
        await self.pass_time(clock, LEASE)
        await store.sweep()
        await store.clear("orders", waiting=True, scheduled=True, destructive=False)
        await store.import_items("orders", 1, [an_item(clock.now())])

        await store.produce("orders", [[NewItem(b"y")] * 2, [NewItem(b"z")]])

        assert payloads(await listed(store)) == [b"y", b"y"]
        assert payloads(await listed(store, partition=1)) == [b"x", b"z"]
