"""The contract of lease queues about limits, and what happens when they change."""

from datetime import timedelta

import pytest
from msgspec import structs

from contracts.items_bench import (
    LEASE,
    LIFE,
    ItemsBench,
    a_queue,
    an_item,
    given_back,
    leased,
    listed,
    payloads,
    produced,
)
from deadletter.core.policy import LimitMode
from deadletter.ports import ItemStore
from deadletter.queue_server.model import DeadItem, Death, Item
from deadletter.testing.fakes import FakeClock

DLQ = "orders-dlq"


class LimitsContract(ItemsBench):
    """The limits of a queue are those of its items, also of those that are there already."""

    @pytest.mark.parametrize("limit_mode", LimitMode)
    async def test_the_limit_mode_decides_which_attempt_is_the_last(
        self, store: ItemStore, limit_mode: LimitMode
    ) -> None:
        await store.create_queue(a_queue(DLQ))
        await store.create_queue(a_queue(dead_queue=DLQ, max_attempts=2, limit_mode=limit_mode))
        await produced(store, b"a")

        attempts = 0
        while (lent := (await leased(store)).items) and not await listed(store, DLQ):
            attempts += 1
            await given_back(store, lent)

        assert attempts == (3 if limit_mode is LimitMode.EXCEEDED else 2)
        (dead,) = await listed(store, DLQ)
        assert dead.payload == b"a"
        assert await listed(store) == []

    async def test_an_exceeded_limit_counts_for_lost_leases_as_well(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        limited = a_queue(max_attempts=1, limit_mode=LimitMode.EXCEEDED)
        await store.create_queue(limited)
        await produced(store, b"a")

        deaths = []
        for _ in range(2):
            (item,) = (await leased(store)).items
            await self.pass_time(clock, LEASE)
            deaths.append((await store.sweep()).dead)

        assert deaths == [(), (DeadItem("orders", item.id, Death.ATTEMPTS),)]

    @pytest.mark.parametrize("saved_by", [{"max_attempts": 5}, {"max_attempts": 0}])
    async def test_a_raised_limit_saves_items_that_are_there(
        self, store: ItemStore, clock: FakeClock, saved_by: dict[str, int]
    ) -> None:
        await self.with_dead_queue(store, max_attempts=1)
        await produced(store, b"given back", b"lost")
        back, _ = (await leased(store)).items
        limits = a_queue(dead_queue=DLQ)

        await store.update_queue(structs.replace(limits, **saved_by))

        assert await given_back(store, [back]) == []
        await self.pass_time(clock, LEASE)
        assert (await store.sweep()).dead == ()
        again = (await leased(store)).items
        assert [(item.payload, item.attempts, item.max_attempts) for item in again] == [
            (b"given back", 2, saved_by["max_attempts"]),
            (b"lost", 2, saved_by["max_attempts"]),
        ]
        assert await listed(store, DLQ) == []

    async def test_a_raised_limit_saves_items_that_wait_to_be_swept(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store, max_attempts=2)
        await store.import_items("orders", 0, _spent(clock, b"now", b"later"))
        told: list[str] = []
        store.on_ready(told.append)

        await store.update_queue(a_queue(dead_queue=DLQ, max_attempts=3))

        assert "orders" in told
        assert (await store.sweep()).dead == ()
        assert payloads((await leased(store)).items) == [b"now"]
        await self.pass_time(clock, 5.0)
        await store.sweep()
        assert payloads((await leased(store)).items) == [b"later"]

    async def test_saved_items_expire_when_they_would_have(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store, max_attempts=2)
        await store.import_items("orders", 0, _spent(clock, b"a"))

        await store.update_queue(a_queue(dead_queue=DLQ))
        early = await store.sweep()
        await self.pass_time(clock, LIFE)
        late = await store.sweep()

        assert early.dead == ()
        assert [one.death for one in late.dead] == [Death.EXPIRED]

    async def test_a_lowered_limit_ends_items_that_have_had_their_attempts(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"held", b"waits", b"later", b"fresh")
        held, waits, later = (await leased(store, 3)).items
        await given_back(store, [waits])
        await given_back(store, [later], at=clock.now() + timedelta(seconds=50))

        await store.update_queue(a_queue(dead_queue=DLQ, max_attempts=1))

        assert payloads((await leased(store)).items) == [b"fresh"]
        swept = await store.sweep()
        assert {one.death for one in swept.dead} == {Death.ATTEMPTS}
        assert sorted(payloads(await listed(store, DLQ))) == [b"later", b"waits"]
        assert await listed(store, scheduled=True) == []
        (dead,) = await given_back(store, [held])
        assert dead == DeadItem("orders", held.id, Death.ATTEMPTS, DLQ)

    async def test_a_changed_limit_of_a_dead_queue_ends_nothing(self, store: ItemStore) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"a")
        await given_back(store, (await leased(store)).items, dead=True)
        await given_back(store, (await leased(store, queue=DLQ)).items, queue=DLQ)

        await store.update_queue(a_queue(DLQ, max_attempts=1))

        assert (await store.sweep()).dead == ()
        assert payloads((await leased(store, queue=DLQ)).items) == [b"a"]

    async def test_a_changed_dead_queue_is_where_items_go_that_are_there(
        self, store: ItemStore
    ) -> None:
        await self.with_dead_queue(store)
        await store.create_queue(a_queue("other"))
        await produced(store, b"first", b"second", b"third")
        first, second, third = (await leased(store)).items

        await given_back(store, [first], dead=True)
        await store.update_queue(a_queue(dead_queue="other"))
        await given_back(store, [second], dead=True)
        await store.update_queue(a_queue())
        (gone,) = await given_back(store, [third], dead=True)

        assert gone == DeadItem("orders", third.id, Death.ASKED, None)
        assert payloads(await listed(store, DLQ)) == [b"first"]
        assert payloads(await listed(store, "other")) == [b"second"]
        assert (await store.queue("orders")).dead_queue is None


def _spent(clock: FakeClock, *payloads: bytes) -> list[Item]:
    """Return items with two attempts; `later` is scheduled."""
    later = clock.now() + timedelta(seconds=5)
    spent = [structs.replace(an_item(clock.now(), payload), attempts=2) for payload in payloads]
    return [
        structs.replace(item, enqueue_at=later) if item.payload == b"later" else item
        for item in spent
    ]
