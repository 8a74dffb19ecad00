"""What lease queues promise about where their items came from."""

from contracts.items_bench import (
    ItemsBench,
    a_queue,
    an_item,
    completed,
    given_back,
    leased,
    listed,
    payloads,
    produced,
)
from deadletter.ports import ItemStore
from deadletter.queue_server.model import SOURCE_MEMORY
from deadletter.testing.fakes import FakeClock

DLQ = "orders-dlq"


class RememberingContract(ItemsBench):
    """None comes twice, and what is long gone takes no room."""

    async def test_a_source_is_remembered_as_long_as_its_item_is_there(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"moved")
        (item,) = (await leased(store)).items
        await given_back(store, [item], dead=True)
        await self.bring(store, clock, "imported")

        for _ in range(4):
            await self.pass_time(clock, SOURCE_MEMORY)
            await store.forget()

        assert await self.bring(store, clock, item.id) is False
        assert await self.bring(store, clock, "imported") is False
        assert payloads(await listed(store, DLQ)) == [b"moved", b"imported"]

    async def test_it_is_remembered_for_long_after_that(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await self.bring(store, clock, "asked for")
        await self.bring(store, clock, "long gone")
        await self.pass_time(clock, 10 * SOURCE_MEMORY)
        await store.forget()
        lent = await leased(store, queue=DLQ)
        await completed(store, [item.id for item in lent.items], queue=DLQ)

        await self.pass_time(clock, SOURCE_MEMORY - 1)
        await store.forget()
        first = await self.bring(store, clock, "asked for")
        await self.pass_time(clock, SOURCE_MEMORY - 1)
        await store.forget()  # misses the other one
        second = await self.bring(store, clock, "asked for")
        await self.pass_time(clock, SOURCE_MEMORY)
        await store.forget()  # ...and again

        assert (first, second) == (False, False)
        assert await self.bring(store, clock, "asked for") is False
        assert await self.bring(store, clock, "long gone") is True

    async def test_what_was_moved_and_consumed_is_forgotten_in_the_end(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"a")
        (item,) = (await leased(store)).items
        await given_back(store, [item], dead=True)
        (dead,) = (await leased(store, queue=DLQ)).items
        await completed(store, [dead.id], queue=DLQ)

        for _ in range(2):
            await self.pass_time(clock, SOURCE_MEMORY)
            await store.forget()

        assert await self.bring(store, clock, item.id) is True

    async def test_an_item_that_came_back_meanwhile_counts_from_then(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(DLQ))
        await self.bring(store, clock, "a")
        await store.clear(DLQ, waiting=True, scheduled=True, destructive=True)
        for _ in range(2):
            await self.pass_time(clock, SOURCE_MEMORY)
            await store.forget()
        assert await self.bring(store, clock, "a") is True
        await store.clear(DLQ, waiting=True, scheduled=True, destructive=True)
        await self.pass_time(clock, SOURCE_MEMORY)

        await store.forget()

        assert await self.bring(store, clock, "a") is False

    async def test_forgetting_is_bounded_and_says_that_there_is_more(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(DLQ))
        await store.create_queue(a_queue("other"))
        for queue in (DLQ, "other"):
            items = [an_item(clock.now(), b"x", f"{n}") for n in range(12)]
            await store.import_items(queue, 0, items)
            await store.clear(queue, waiting=True, scheduled=True, destructive=True)
        assert await store.forget() is False
        await self.pass_time(clock, SOURCE_MEMORY)

        assert [await store.forget(limit=10) for _ in range(3)] == [True, True, False]
        assert await store.forget() is False

    async def bring(self, store: ItemStore, clock: FakeClock, source_id: str) -> bool:
        """Import into the dead queue; whether it was new."""
        item = an_item(clock.now(), source_id.encode(), source_id)
        return bool(await store.import_items(DLQ, 0, [item]))
