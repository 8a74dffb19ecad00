"""What a mailbox promises when clocks step."""

import pytest

from deadletter.ports import Acked, Engine

from .fakes import FakeClock
from .queue_bench import LEASE, MailboxBench, a_message, drained, info, release

HOURS = 7200.0
JUMPS = [HOURS, 400 * 86_400.0]


class ClockContract(MailboxBench):
    """A delay or lease lasts no longer than was asked for, whatever the clock did."""

    async def step(self, clock: FakeClock, seconds: float) -> None:
        """Set the clock that the engine goes by, while no time passes."""
        clock.step(seconds)
        await self.pass_time(clock, 0.0)

    @pytest.mark.parametrize("jump", JUMPS)
    async def test_retries_written_while_the_clock_was_ahead_come_when_they_should(
        self, engine: Engine, clock: FakeClock, jump: float
    ) -> None:
        await self.sent(engine, a_message(), a_message())
        source = engine.broker.source("orders")
        await self.step(clock, jump)
        for delivery in await source.receive(limit=2, wait=0, lease=LEASE):
            await release(source, delivery, 5.0, history="told")
        await self.step(clock, -jump)

        swept = await engine.broker.sweep()

        assert swept.misdated == 2
        assert abs(swept.ahead - jump) < 2
        assert await drained(source) == []
        await self.pass_time(clock, 6.0)
        again = await drained(source)
        assert [d.attempt for d in again] == [2, 2]
        assert [d.history for d in again] == ["told", "told"]

    @pytest.mark.parametrize("jump", JUMPS)
    async def test_messages_sent_while_the_clock_was_ahead_arrive(
        self, engine: Engine, clock: FakeClock, jump: float
    ) -> None:
        await self.step(clock, jump)
        await self.sent(engine)
        await self.sent(engine, delay=5.0)
        await self.step(clock, -jump)

        await engine.broker.sweep()

        source = engine.broker.source("orders")
        assert len(await drained(source)) == 1
        await self.pass_time(clock, 6.0)
        assert len(await drained(source)) == 1

    async def test_retries_come_when_they_should_after_the_clock_was_set_back(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        source = engine.broker.source("orders")
        await release(source, await self.received(engine), 5.0)
        await self.step(clock, -HOURS)

        await engine.broker.sweep()
        await self.pass_time(clock, 6.0)

        assert len(await drained(source)) == 1

    async def test_what_a_worker_held_that_died_while_the_clock_was_ahead_comes_back(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        await self.step(clock, HOURS)
        await self.received(engine)
        await self.step(clock, -HOURS)

        swept = await engine.broker.sweep()
        await self.pass_time(clock, LEASE + 1)
        later = await engine.broker.sweep()

        assert (swept.misdated, swept.lost) == (1, 0)
        assert (later.misdated, later.lost) == (0, 1)

    async def test_a_worker_that_lives_keeps_what_it_holds_when_the_clock_is_set_back(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        source = engine.broker.source("orders")
        delivery = await self.received(engine)
        await self.step(clock, -HOURS)

        await engine.broker.sweep()

        assert await source.extend([delivery], lease=LEASE) == [True]
        assert await source.settle([Acked(delivery)]) == [True]

    async def test_delays_that_were_asked_for_are_left_alone(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, delay=3 * HOURS)
        await self.sent(engine)
        source = engine.broker.source("orders")
        await release(source, await self.received(engine), HOURS)
        await self.sent(engine)
        held = await self.received(engine, lease=HOURS)

        swept = await engine.broker.sweep()

        assert (swept.misdated, swept.ahead) == (0, 0.0)
        assert (await info(engine.broker)).delayed == 2
        assert await source.settle([Acked(held)]) == [True]

    async def test_every_misdated_message_is_found_however_many_wait(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        """Also behind others whose long delays were asked for."""
        few = [a_message() for _ in range(3)]
        await self.step(clock, HOURS)
        await self.sent(engine, *few, delay=1.0)
        await self.step(clock, -HOURS)
        await self.sent(engine, *(a_message() for _ in range(1_200)), delay=3 * HOURS)

        found = 0
        for _ in range(4):
            found += (await engine.broker.sweep()).misdated

        assert found == 3
        await self.pass_time(clock, 2.0)
        arrived = await drained(engine.broker.source("orders"))
        assert {d.message.id for d in arrived} == {m.id for m in few}
