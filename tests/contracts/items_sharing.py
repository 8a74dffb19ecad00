"""What lease queues promise when several processes share them."""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from contracts.items_bench import a_queue, leased, payloads, produced
from deadletter.ports import ItemStore
from deadletter.testing.fakes import eventually


class SharingContract:
    """
    Each item to one of all processes, and each is told of what others do.

    A backend's test class gives a fixture `stores`: two of one place, each opened by
    itself, on the real clock.
    """

    async def test_what_another_process_produces_is_told(self, stores: Sequence[ItemStore]) -> None:
        ours, theirs = stores
        await ours.create_queue(a_queue())
        told: list[str] = []
        ours.on_ready(told.append)
        assert (await leased(ours)).items == ()

        await produced(theirs, b"a")

        await eventually(lambda: "orders" in told)
        assert payloads((await leased(ours)).items) == [b"a"]
        assert (await leased(ours)).items == ()
        told.clear()
        await produced(theirs, b"b")
        await eventually(lambda: "orders" in told)

    async def test_partitions_that_another_process_added_are_found(
        self, stores: Sequence[ItemStore]
    ) -> None:
        ours, theirs = stores
        await ours.create_queue(a_queue())
        await produced(ours, b"a")
        await theirs.update_queue(a_queue(partitions=2))

        await produced(ours, b"b")

        assert [one.total for one in await ours.stats("orders")] == [1, 1]
        first, second = await theirs.lease("orders", [5, 5])
        assert (payloads(first.items), payloads(second.items)) == ([b"a"], [b"b"])

    async def test_two_processes_lease_no_item_twice(self, stores: Sequence[ItemStore]) -> None:
        await stores[0].create_queue(a_queue(partitions=2))
        for i in range(20):
            batch = (b"%d" % n for n in range(i * 10, i * 10 + 10))
            await produced(stores[0], *batch)

        answers = await asyncio.gather(*(leased(store, 7) for store in stores for _ in range(20)))
        answers += [await leased(stores[0], 7) for _ in range(30)]

        lent = [payload for one in answers for payload in payloads(one.items)]
        assert sorted(lent, key=int) == [b"%d" % n for n in range(200)]

    async def test_two_processes_tend_without_doubling(self, stores: Sequence[ItemStore]) -> None:
        ours, _ = stores
        await ours.create_queue(a_queue("dead"))
        brief = structs.replace(a_queue(dead_queue="dead", max_attempts=1), lease_timeout=0.01)
        await ours.create_queue(brief)
        await produced(ours, *(b"%d" % n for n in range(300)))
        assert len((await leased(ours, 300)).items) == 300
        gone = 0

        async def all_are_gone() -> bool:
            nonlocal gone
            tending = [store.sweep(limit=20) for store in stores for _ in range(4)]
            gone += sum(len(one.dead) for one in await asyncio.gather(*tending))
            return gone >= 300

        await eventually(all_are_gone)

        dead = await ours.items("dead", 0, limit=1000)
        assert sorted(payloads(dead), key=int) == [b"%d" % n for n in range(300)]
        assert len({item.source_id for item in dead}) == 300
        assert [one.total for one in await ours.stats("orders")] == [0]
