"""What a mailbox promises about giving deliveries up, and about who may."""

from datetime import timedelta

from deadletter.core.message import Delivery
from deadletter.ports import Acked, Engine, Fate, Released

from .fakes import FakeClock
from .queue_bench import LEASE, MailboxBench, a_message, info, release, tally


class SettlingContract(MailboxBench):
    """Acks forget, releases hand back, and nobody settles what is not his."""

    async def test_an_acked_delivery_never_comes_back(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        delivery = await self.received(engine)

        settled = await engine.broker.source("orders").settle([Acked(delivery)])

        assert settled == [True]
        await self.pass_time(clock, LEASE + 1)
        await engine.broker.sweep()
        assert await self.nothing_left(engine)

    async def test_a_released_delivery_comes_back_counted(self, engine: Engine) -> None:
        (message,) = await self.sent(engine)
        first = await self.received(engine)
        await release(engine.broker.source("orders"), first)

        again = await self.received(engine)

        assert again.message == message
        assert (again.attempt, again.charged) == (2, 2)
        assert again.first_received_at == first.first_received_at

    async def test_a_release_is_delayed_as_asked(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        source = engine.broker.source("orders")
        await release(source, await self.received(engine), 2.0)

        await self.pass_time(clock, 1.9)
        too_early = await source.receive(limit=1, wait=0, lease=LEASE)
        await self.pass_time(clock, 0.1)
        in_time = await source.receive(limit=1, wait=self.slack, lease=LEASE)

        assert (len(too_early), len(in_time)) == (0, 1)

    async def test_a_release_is_not_delayed_beyond_its_expiry(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        expires_at = clock.now() + timedelta(seconds=5)
        await self.sent(engine, a_message(expires_at=expires_at))
        source = engine.broker.source("orders")
        await release(source, await self.received(engine), 60.0)

        await self.pass_time(clock, 5.0)

        assert len(await source.receive(limit=1, wait=self.slack, lease=LEASE)) == 1

    async def test_an_uncharged_release_counts_but_does_not_charge(
        self, engine: Engine
    ) -> None:
        await self.sent(engine)
        first = await self.received(engine)
        await release(engine.broker.source("orders"), first, charged=False)

        again = await self.received(engine)

        assert (again.attempt, again.spared, again.charged) == (2, 1, 1)

    async def test_the_story_given_with_a_release_comes_back(
        self, engine: Engine
    ) -> None:
        await self.sent(engine)
        story = '{"number":1,"text":"\\"\\u0000 ünï"}\n{"number":2}'
        source = engine.broker.source("orders")
        await release(source, await self.received(engine), history=story)

        told = await self.received(engine)
        await release(source, told)  # with no story: the old one stays
        again = await self.received(engine)

        assert (told.history, again.history) == (story, story)

    async def test_a_delivery_is_settled_once(self, engine: Engine) -> None:
        await self.sent(engine)
        delivery = await self.received(engine)
        source = engine.broker.source("orders")

        first = await source.settle([Released(delivery)])
        second = await source.settle([Acked(delivery)])
        third = await source.settle([Released(delivery, 99.0)])

        assert (first, second, third) == ([True], [False], [False])
        assert (await self.received(engine)).attempt == 2

    async def test_a_delivery_named_twice_in_a_batch_is_settled_once(
        self, engine: Engine
    ) -> None:
        await self.sent(engine)
        delivery = await self.received(engine)
        source = engine.broker.source("orders")

        settled = await source.settle([Acked(delivery), Acked(delivery)])

        assert settled == [True, False]
        counted = tally(engine, {"sent": 1, Fate.HANDLED: 1})
        assert (await info(engine.broker)).tally == counted

    async def test_a_batch_may_mix_everything(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        sending = await self.sent(engine, *(a_message() for _ in range(7)))
        source = engine.broker.source("orders")
        few = await source.receive(limit=3, wait=0, lease=LEASE)
        more = await source.receive(limit=4, wait=0, lease=LEASE)

        settled = await source.settle(
            [
                Acked(few[0]),
                Released(few[1], 5.0, "told"),
                Acked(more[0], Fate.BURIED),
                Released(more[1]),
                Acked(few[2], Fate.FAILED),
                Released(more[2], charged=False),
                Acked(more[3], Fate.IGNORED),
            ]
        )

        assert settled == [True] * 7
        await self.pass_time(clock, 5.0)
        back = await source.receive(limit=10, wait=0, lease=LEASE)
        told = {d.message.id: (d.attempt, d.spared, d.history) for d in back}
        assert told == {
            sending[1].id: (2, 0, "told"),
            sending[4].id: (2, 0, ""),
            sending[5].id: (2, 1, ""),
        }

    async def test_settling_nothing_is_fine(self, engine: Engine) -> None:
        source = engine.broker.source("orders")

        assert await source.settle([]) == []
        assert await source.extend([], lease=LEASE) == []

    async def test_a_large_batch_is_settled_like_a_small_one(
        self, engine: Engine
    ) -> None:
        await self.sent(engine, *(a_message() for _ in range(350)))
        source = engine.broker.source("orders")
        taken = await source.receive(limit=350, wait=0, lease=LEASE)

        settled = await source.settle(
            [Acked(d) if i % 3 else Released(d) for i, d in enumerate(taken)]
        )

        assert settled == [True] * 350
        assert len(await source.receive(limit=500, wait=0, lease=LEASE)) == 117

    async def test_settling_late_changes_nothing(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, a_message(), a_message())
        source = engine.broker.source("orders")
        one, two = await source.receive(limit=2, wait=0, lease=LEASE)

        await self.pass_time(clock, LEASE)
        settled = await source.settle([Acked(one), Released(two, history="late")])

        assert settled == [False, False]
        assert (await self.swept(engine)).lost == 2
        suspect = await self.received(engine, alone=True)
        assert (suspect.attempt, suspect.history) == (2, "")

    async def test_somebody_fenced_cannot_touch_another_claim(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        fenced = await self.received(engine)
        await self.pass_time(clock, LEASE)
        await self.swept(engine)
        theirs = await self.received(engine, alone=True)
        source = engine.broker.source("orders")

        extended = await source.extend([fenced], lease=LEASE)
        acked = await source.settle([Acked(fenced)])
        released = await source.settle([Released(fenced)])

        assert (extended, acked, released) == ([False], [False], [False])
        assert await source.settle([Acked(theirs)]) == [True]

    async def test_only_the_fenced_ones_of_a_batch_are_refused(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, *(a_message() for _ in range(6)))
        source = engine.broker.source("orders")
        short = await source.receive(limit=3, wait=0, lease=1.0)
        long = await source.receive(limit=3, wait=0, lease=LEASE)
        mixed: list[Delivery] = [
            d for pair in zip(short, long, strict=True) for d in pair
        ]
        await self.pass_time(clock, 2.0)

        extended = await source.extend(mixed, lease=LEASE)
        settled = await source.settle(
            [Acked(d) if i < 4 else Released(d) for i, d in enumerate(mixed)]
        )

        assert extended == settled == [False, True] * 3
        counts = await info(engine.broker)
        assert counts.tally == tally(engine, {"sent": 6, Fate.HANDLED: 2})
        if engine.features.sees_delayed:
            assert (counts.ready, counts.claimed) == (1, 3)

    async def test_an_extended_lease_holds(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        delivery = await self.received(engine, lease=10.0)
        source = engine.broker.source("orders")

        await self.pass_time(clock, 9.0)
        extended = await source.extend([delivery, delivery], lease=10.0)
        await self.pass_time(clock, 9.0)

        assert extended == [True, True]
        assert (await engine.broker.sweep()).lost == 0
        assert await source.settle([Acked(delivery)]) == [True]

    async def test_a_lease_that_has_run_out_cannot_be_extended(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        delivery = await self.received(engine, lease=10.0)

        await self.pass_time(clock, 10.0)
        extended = await engine.broker.source("orders").extend([delivery], lease=10.0)

        assert extended == [False]
        assert (await self.swept(engine)).lost == 1

    async def test_another_mailbox_cannot_settle_it(self, engine: Engine) -> None:
        await self.sent(engine)
        delivery = await self.received(engine)
        other = engine.broker.source("returns")

        settled = await other.settle([Acked(delivery), Released(delivery)])
        extended = await other.extend([delivery], lease=LEASE)

        assert (settled, extended) == ([False, False], [False])
        assert (await info(engine.broker)).claimed == 1

    async def test_nothing_is_unaccounted_for(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, *(a_message() for _ in range(30)))
        source = engine.broker.source("orders")
        fates = list(Fate)

        for i in range(20):
            (delivery,) = await source.receive(limit=1, wait=0, lease=LEASE)
            fate = fates[i % len(fates)]
            await source.settle(
                [Acked(delivery, fate) if i % 2 else Released(delivery, 60.0)]
            )
        await source.receive(limit=3, wait=0, lease=LEASE)

        counts = await info(engine.broker)
        if engine.features.tallies:
            assert counts.tally["sent"] == 30
            assert sum(counts.tally.get(fate, 0) for fate in Fate) == 10
        if engine.features.sees_delayed:
            assert (counts.ready, counts.delayed, counts.claimed) == (7, 10, 3)
        else:
            assert counts.ready + counts.delayed + counts.claimed == 20
