"""Delays on SQS: fifteen minutes on sending, twelve hours once received, then on."""

from datetime import timedelta

import pytest

from deadletter.brokers.sqs.engine import SqsEngine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import LEASE, release
from engines.sqs_rig import SqsBench


class TestDelays(SqsBench):
    @pytest.mark.parametrize("delay", [1800.0, 43_200.0, 100_000.0])
    async def test_a_long_delay_is_kept_hop_by_hop(
        self, engine: SqsEngine, clock: FakeClock, delay: float
    ) -> None:
        (message,) = await self.sent(engine, delay=delay)

        assert await self._hours_until_received(engine, clock) == delay

        delivery = await self.received(engine)
        assert (delivery.message, delivery.attempt, delivery.spared) == (message, 1, 0)

    async def test_a_release_may_wait_for_days(self, engine: SqsEngine, clock: FakeClock) -> None:
        await self.sent(engine)
        source = engine.broker.source("orders")
        await release(source, await self.received(engine), 100_000.0, history="told")

        assert await self._hours_until_received(engine, clock) == 100_000.0

        again = await self.received(engine)
        assert (again.attempt, again.charged, again.history) == (2, 2, "told")

    async def test_lost_after_a_long_wait_it_is_a_suspect_all_the_same(
        self, engine: SqsEngine, clock: FakeClock
    ) -> None:
        await self.sent(engine, delay=2000.0)
        await self._hours_until_received(engine, clock)
        source = engine.broker.source("orders")
        await self.received(engine)
        await self.pass_time(clock, LEASE)

        assert await source.receive(limit=1, wait=0, lease=LEASE) == []
        suspect = await self.received(engine, alone=True)
        assert (suspect.attempt, suspect.charged) == (2, 1)

    async def test_leases_are_limited_to_twelve_hours(
        self, engine: SqsEngine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        source = engine.broker.source("orders")
        delivery = await self.received(engine, lease=40_000)

        await self.pass_time(clock, 39_000)
        longer = await source.extend([delivery], lease=10_000)
        await self.pass_time(clock, 4_100)
        still = await source.extend([delivery], lease=10_000)
        await self.pass_time(clock, 200)
        over = await source.extend([delivery], lease=10_000)

        assert (longer, still, over) == ([True], [True], [False])

    async def _hours_until_received(self, engine: SqsEngine, clock: FakeClock) -> float:
        """Look every 200 seconds, without taking; how long it took to be there."""
        source, began = engine.broker.source("orders"), clock.now()
        while clock.now() - began < timedelta(days=2):
            found = await source.receive(limit=1, wait=0, lease=LEASE)
            if found:
                claims = [delivery.receipt for delivery in found]
                await engine.broker._settler.put_back("orders", claims)  # type: ignore[attr-defined]
                break
            await self.pass_time(clock, 200)
        return (clock.now() - began).total_seconds()
