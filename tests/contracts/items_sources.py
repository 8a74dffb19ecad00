"""The contract of lease queues about the sources of items."""

from typing import Any

import pytest

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
from deadletter.testing.fakes import FakeClock

DLQ = "orders-dlq"


class SourcesContract(ItemsBench):
    """A source is taken while an item has it, and free as soon as that item is gone."""

    async def test_a_source_is_taken_while_its_item_is_there(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"moved")
        (item,) = (await leased(store)).items
        await given_back(store, [item], dead=True)
        await self.bring(store, clock, "imported")
        await leased(store, 1, queue=DLQ)

        assert await self.bring(store, clock, item.id) is False
        assert await self.bring(store, clock, "imported") is False
        assert payloads(await listed(store, DLQ)) == [b"moved", b"imported"]

    @pytest.mark.parametrize("gone", ["completed", "deleted", "cleared", "given back dead"])
    async def test_a_source_is_free_when_its_item_is_gone(
        self, store: ItemStore, clock: FakeClock, gone: str
    ) -> None:
        await store.create_queue(a_queue(DLQ))
        await self.bring(store, clock, "a")
        if gone == "deleted":
            (item,) = await listed(store, DLQ)
            await store.delete_items(DLQ, 0, [item.id])
        elif gone == "cleared":
            await store.clear(DLQ, waiting=True, scheduled=True, destructive=True)
        else:
            found = (await leased(store, queue=DLQ)).items
            if gone == "completed":
                await completed(store, [found[0].id], queue=DLQ)
            else:
                await given_back(store, found, queue=DLQ, dead=True)

        assert await self.bring(store, clock, "a") is True
        assert await self.bring(store, clock, "a") is False

    async def test_a_cleared_dead_queue_can_be_restored_from_its_list(
        self, store: ItemStore
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, *(b"%d" % n for n in range(50)))
        await given_back(store, (await leased(store)).items, dead=True)
        before = await listed(store, DLQ)
        await store.clear(DLQ, waiting=True, scheduled=True, destructive=True)

        added = await store.import_items(DLQ, 0, before)
        again = await store.import_items(DLQ, 0, before)

        assert (len(added), again) == (50, [])
        after = await listed(store, DLQ)
        assert [_content(item) for item in after] == [_content(item) for item in before]

    async def bring(self, store: ItemStore, clock: FakeClock, source_id: str) -> bool:
        """Import into the dead queue; return whether it was added."""
        item = an_item(clock.now(), source_id.encode(), source_id)
        return bool(await store.import_items(DLQ, 0, [item]))


def _content(item: Any) -> tuple[Any, ...]:
    return item.source_id, item.payload, item.created_at, item.expire_deadline
