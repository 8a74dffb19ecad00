"""What lease queues promise when clocks step."""

import pytest

from contracts.items_bench import LEASE, ItemsBench, a_queue, completed, leased, payloads, produced
from deadletter.ports import ItemStore, ShortenedLeases
from deadletter.testing.fakes import FakeClock

HOURS = 7200.0
JUMPS = [HOURS, 400 * 86_400.0]


class ItemClocksContract(ItemsBench):
    """A lease lasts no longer than its queue lends, whatever the clock did."""

    async def step(self, clock: FakeClock, seconds: float) -> None:
        """Set the clock that the engine goes by, while no time passes."""
        clock.step(seconds)
        await self.pass_time(clock, 0.0)

    @pytest.mark.parametrize("jump", JUMPS)
    async def test_what_was_leased_while_the_clock_was_ahead_comes_back_in_time(
        self, store: ItemStore, clock: FakeClock, jump: float
    ) -> None:
        await store.create_queue(a_queue(partitions=2))
        await self.step(clock, jump)
        await produced(store, b"1")
        await produced(store, b"2")
        await store.lease("orders", [1, 1])
        await self.step(clock, -jump)

        found = await store.shorten_leases()

        assert found.leases == 2
        assert abs(found.ahead - jump) < 2
        assert await store.shorten_leases() == ShortenedLeases()
        assert (await store.sweep()).ready == frozenset()
        await self.pass_time(clock, LEASE + 1)
        assert (await store.sweep()).ready == {"orders"}
        again = await store.lease("orders", [1, 1])
        assert sorted(p for one in again for p in payloads(one.items)) == [b"1", b"2"]

    async def test_a_client_keeps_what_it_holds_when_the_clock_is_set_back(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"1")
        held = await leased(store)
        await self.step(clock, -HOURS)

        assert (await store.shorten_leases()).leases == 1
        await store.sweep()

        assert await completed(store, [held.items[0].id]) is None

    async def test_leases_that_were_asked_for_are_left_alone(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"1")
        await produced(store, b"2", at=clock.now().replace(year=2040))
        await leased(store, 1)

        assert await store.shorten_leases() == ShortenedLeases()
        await self.pass_time(clock, LEASE / 2)
        assert await store.shorten_leases() == ShortenedLeases()

    async def test_every_misdated_lease_is_found_however_many_there_are(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue())
        await self.step(clock, HOURS)
        await produced(store, *(b"x" for _ in range(1_200)))
        await store.lease("orders", [1_100])
        await self.step(clock, -HOURS)

        found = [(await store.shorten_leases()).leases for _ in range(4)]

        assert sum(found) == 1_100
