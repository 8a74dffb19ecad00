"""What lease queues promise about themselves."""

from datetime import timedelta

import pytest
from msgspec import structs

from contracts.items_bench import LIFE, ItemsBench, a_queue, an_item, leased, listed, produced
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.policy import LimitMode
from deadletter.ports import ItemStore
from deadletter.queue_server.model import LeaseQueue
from deadletter.testing.fakes import FakeClock


class QueuesContract(ItemsBench):
    """They are kept as they were made, and those that cannot be are refused."""

    async def test_a_queue_is_kept_as_it_was_made(self, store: ItemStore, clock: FakeClock) -> None:
        queue = LeaseQueue(
            name="orders.é-1",
            lease_timeout=0.25,
            expire_timeout=3600.0,
            max_attempts=7,
            limit_mode=LimitMode.EXCEEDED,
            partitions=3,
            reference="of the shop\0",
            namespace="shop",
        )
        await store.create_queue(queue)
        made = structs.replace(queue, created_at=clock.now(), updated_at=clock.now())

        assert await store.queue(queue.name) == made
        assert await store.queues(limit=10) == [made]
        await self.pass_time(clock, 5.0)
        changed = structs.replace(made, lease_timeout=9.0, partitions=4, reference="")
        await store.update_queue(changed)
        assert await store.queue(queue.name) == structs.replace(changed, updated_at=clock.now())
        assert len(await store.stats(queue.name)) == 4

    async def test_a_queue_is_made_once(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())

        with pytest.raises(Conflict, match="already exists"):
            await store.create_queue(a_queue())

    @pytest.mark.parametrize(
        "odd",
        [
            {"name": ""},
            {"name": "a b"},
            {"name": "a~b"},
            {"name": "x" * 513},
            {"lease_timeout": 0.0},
            {"lease_timeout": LIFE + 1},
            {"expire_timeout": float("inf")},
            {"lease_timeout": float("nan")},
            {"max_attempts": -1},
            {"max_attempts": 65_537},
            {"limit_mode": "often"},
            {"partitions": 0},
            {"partitions": 1_001},
            {"reference": "x" * 2_001},
            {"namespace": "x" * 257},
        ],
    )
    async def test_a_queue_that_cannot_be_is_refused(
        self, store: ItemStore, odd: dict[str, object]
    ) -> None:
        with pytest.raises(ConfigError):
            await store.create_queue(structs.replace(a_queue(), **odd))

        assert await store.queues(limit=10) == []

    async def test_partitions_only_become_more(self, store: ItemStore) -> None:
        await store.create_queue(a_queue(partitions=3))

        with pytest.raises(ConfigError, match="cannot have fewer"):
            await store.update_queue(a_queue(partitions=2))

    async def test_a_dead_queue_must_be_there(self, store: ItemStore) -> None:
        await store.create_queue(a_queue("returns"))
        wrong = a_queue(dead_queue="nowhere")

        with pytest.raises(ConfigError, match="does not exist; create it first"):
            await store.create_queue(wrong)
        with pytest.raises(ConfigError, match="does not exist; create it first"):
            await store.update_queue(structs.replace(wrong, name="returns"))

    async def test_a_dead_queue_is_not_the_queue_itself(self, store: ItemStore) -> None:
        itself = a_queue(dead_queue="orders")

        with pytest.raises(ConfigError, match="cannot reference itself"):
            await store.create_queue(itself)
        await store.create_queue(a_queue())
        with pytest.raises(ConfigError, match="cannot reference itself"):
            await store.update_queue(itself)

    async def test_a_dead_queue_has_none_of_its_own(self, store: ItemStore) -> None:
        await self.with_dead_queue(store)
        await store.create_queue(a_queue("returns"))
        own = "cannot have its own dead_queue"

        with pytest.raises(ConfigError, match=own):  # a chain, downwards
            await store.create_queue(a_queue("new", dead_queue="orders"))
        with pytest.raises(ConfigError, match=own):
            await store.update_queue(a_queue("returns", dead_queue="orders"))
        with pytest.raises(ConfigError, match=own):  # ...and upwards
            await store.update_queue(a_queue("orders-dlq", dead_queue="returns"))
        await store.update_queue(a_queue("returns", dead_queue="orders-dlq"))

    async def test_a_dead_queue_in_use_is_deleted_by_force_only(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"a")

        with pytest.raises(Conflict, match="orders-dlq is the dead queue of orders"):
            await store.delete_queue("orders-dlq")
        await store.delete_queue("orders-dlq", force=True)

        assert (await store.queue("orders")).dead_queue is None
        await self.pass_time(clock, LIFE)
        assert [one.to for one in (await store.sweep()).dead] == [None]

    async def test_a_deleted_queue_leaves_nothing_behind(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(partitions=2))
        await produced(store, b"a", b"b")
        await produced(store, b"c", at=clock.now() + timedelta(seconds=5))
        source = an_item(clock.now(), source_id="abc")
        await store.import_items("orders", 0, [source])
        await leased(store, 1)
        assert await store.delete_queue("orders") == 4
        assert await store.queues(limit=10) == []
        assert (await store.sweep()).next_at is None

        await store.create_queue(a_queue())

        assert await listed(store) == []
        assert len(await store.import_items("orders", 0, [source])) == 1
        await self.pass_time(clock, LIFE * 2)
        assert len((await store.sweep()).dead) == 1

    async def test_queues_are_listed_by_name_from_a_pivot_on(self, store: ItemStore) -> None:
        for name in ("b", "d", "a", "c", "é"):
            queue = structs.replace(a_queue(name), namespace="x" if name > "b" else "")
            await store.create_queue(queue)

        async def names(pivot: str, limit: int, space: str | None = None) -> list[str]:
            found = await store.queues(pivot=pivot, limit=limit, namespace=space)
            return [queue.name for queue in found]

        assert await names("", 9) == ["a", "b", "c", "d", "é"]
        assert await names("b", 2) == ["b", "c"]
        assert await names("bb", 9) == ["c", "d", "é"]
        assert await names("z", 1) == ["é"]
        assert await names("", 2, "x") == ["c", "d"]
        assert await names("", 9, "") == ["a", "b"]
