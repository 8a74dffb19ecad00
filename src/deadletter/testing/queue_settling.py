"""Contracts of settlements: acks, releases, lost workers, fencing."""

from datetime import timedelta

from deadletter.core.message import Delivery
from deadletter.ports import Acked, Engine, Fate, QueueOptions, Released

from .fakes import FakeClock
from .queue_bench import LEASE, MailboxBench, a_message, info, promised, release, tally


class SettlingContract(MailboxBench):
    """Acks delete, releases requeue, and only the owner of a claim settles it."""

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

    async def test_a_release_is_delayed_as_asked(self, engine: Engine, clock: FakeClock) -> None:
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

    async def test_an_uncharged_release_counts_but_does_not_charge(self, engine: Engine) -> None:
        await self.sent(engine)
        first = await self.received(engine)
        await release(engine.broker.source("orders"), first, charged=False)

        again = await self.received(engine)

        assert (again.attempt, again.spared, again.charged) == (2, 1, 1)

    async def test_the_story_given_with_a_release_comes_back(self, engine: Engine) -> None:
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

    async def test_a_delivery_named_twice_in_a_batch_is_settled_once(self, engine: Engine) -> None:
        await self.sent(engine)
        delivery = await self.received(engine)
        source = engine.broker.source("orders")

        settled = await source.settle([Acked(delivery), Acked(delivery)])

        assert settled == [True, False]
        counted = tally(engine, {"sent": 1, Fate.HANDLED: 1})
        assert (await info(engine.broker)).tally == counted

    async def test_a_batch_may_mix_everything(self, engine: Engine, clock: FakeClock) -> None:
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

    async def test_a_large_batch_is_settled_like_a_small_one(self, engine: Engine) -> None:
        await self.sent(engine, *(a_message() for _ in range(350)))
        source = engine.broker.source("orders")
        taken = await source.receive(limit=350, wait=0, lease=LEASE)

        settled = await source.settle(
            [Acked(d) if i % 3 else Released(d) for i, d in enumerate(taken)]
        )

        assert settled == [True] * 350
        assert len(await source.receive(limit=500, wait=0, lease=LEASE)) == 117

    async def test_settling_late_changes_nothing(self, engine: Engine, clock: FakeClock) -> None:
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
        mixed: list[Delivery] = [d for pair in zip(short, long, strict=True) for d in pair]
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

    async def test_an_extended_lease_holds(self, engine: Engine, clock: FakeClock) -> None:
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

    async def test_nothing_is_unaccounted_for(self, engine: Engine, clock: FakeClock) -> None:
        await self.sent(engine, *(a_message() for _ in range(30)))
        source = engine.broker.source("orders")
        fates = list(Fate)

        for i in range(20):
            (delivery,) = await source.receive(limit=1, wait=0, lease=LEASE)
            fate = fates[i % len(fates)]
            await source.settle([Acked(delivery, fate) if i % 2 else Released(delivery, 60.0)])
        await source.receive(limit=3, wait=0, lease=LEASE)

        counts = await info(engine.broker)
        if engine.features.tallies:
            assert counts.tally["sent"] == 30
            assert sum(counts.tally.get(fate, 0) for fate in Fate) == 10
        if engine.features.sees_delayed:
            assert (counts.ready, counts.delayed, counts.claimed) == (7, 10, 3)
        else:
            assert counts.ready + counts.delayed + counts.claimed == 20


class LosingContract(MailboxBench):
    """Nothing is lost with a worker, innocents are not charged, the sweep decides."""

    async def test_what_a_lost_worker_held_comes_back_as_suspect(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, a_message(), a_message())
        source = engine.broker.source("orders")
        taken = await source.receive(limit=2, wait=0, lease=LEASE)
        await self.pass_time(clock, LEASE)

        swept = await self.swept(engine)

        assert swept.lost == 2
        assert swept.suspects == {"orders"}
        assert swept.doomed == ()
        suspect = await self.received(engine, alone=True)
        assert suspect.suspect
        assert suspect.message == taken[0].message

    async def test_suspects_are_handed_out_only_alone_and_one_at_a_time(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, a_message(), a_message())
        await self.lost(engine, clock, 2)
        source = engine.broker.source("orders")

        usual = await source.receive(limit=10, wait=0, lease=LEASE)
        alone = await source.receive(limit=10, wait=0, lease=LEASE, alone=True)

        assert (len(usual), len(alone)) == (0, 1)

    async def test_who_asks_for_suspects_gets_nothing_else(self, engine: Engine) -> None:
        await self.sent(engine)
        source = engine.broker.source("orders")

        assert await source.receive(limit=1, wait=0, lease=LEASE, alone=True) == []

    async def test_a_loss_in_company_is_not_charged(self, engine: Engine, clock: FakeClock) -> None:
        await self.sent(engine)
        await self.lost(engine, clock)

        suspect = await self.received(engine, alone=True)

        assert (suspect.attempt, suspect.spared, suspect.charged) == (2, 1, 1)

    async def test_a_loss_alone_is_charged(self, engine: Engine, clock: FakeClock) -> None:
        await self.sent(engine)
        await self.lost(engine, clock)
        await self.lost(engine, clock, alone=True)

        suspect = await self.received(engine, alone=True)

        assert (suspect.attempt, suspect.spared, suspect.charged) == (3, 1, 2)

    async def test_a_suspect_that_was_run_and_released_is_one_no_more(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        await self.lost(engine, clock)
        suspect = await self.received(engine, alone=True)
        await release(engine.broker.source("orders"), suspect)

        proven = await self.received(engine)

        assert not proven.suspect

    async def test_a_suspect_released_with_a_story_was_run(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        await self.lost(engine, clock)
        suspect = await self.received(engine, alone=True)
        source = engine.broker.source("orders")
        await release(source, suspect, history="told", charged=False)

        assert not (await self.received(engine)).suspect

    async def test_a_suspect_handed_back_unrun_is_still_one(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        await self.lost(engine, clock)
        suspect = await self.received(engine, alone=True)
        source = engine.broker.source("orders")
        await release(source, suspect, charged=False)

        assert await source.receive(limit=1, wait=0, lease=LEASE) == []
        assert (await self.received(engine, alone=True)).suspect

    async def test_a_suspect_waits_like_any_other_when_released_with_a_delay(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        await self.lost(engine, clock)
        suspect = await self.received(engine, alone=True)
        source = engine.broker.source("orders")
        await release(source, suspect, 5.0, charged=False)

        assert (await engine.broker.sweep()).suspects == frozenset()
        await self.pass_time(clock, 5.0)
        assert (await self.swept(engine)).suspects == {"orders"}

    async def test_live_claims_are_left_alone(self, engine: Engine, clock: FakeClock) -> None:
        await self.sent(engine)
        delivery = await self.received(engine)
        await self.pass_time(clock, LEASE - 1)

        swept = await engine.broker.sweep()

        assert (swept.lost, swept.suspects, swept.doomed) == (0, frozenset(), ())
        assert await engine.broker.source("orders").settle([Acked(delivery)]) == [True]

    @promised("dooms")
    async def test_a_suspect_out_of_attempts_is_doomed(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await engine.broker.create(QueueOptions(name="orders", max_attempts=2))
        (message,) = await self.sent(engine)
        await self.lost(engine, clock)  # in company: not charged
        await self.lost(engine, clock, alone=True)
        not_yet = await engine.broker.sweep()
        source = engine.broker.source("orders")
        await source.receive(limit=1, wait=0, lease=LEASE, alone=True)
        await self.pass_time(clock, LEASE)

        swept = await engine.broker.sweep()

        assert not_yet.doomed == ()
        (doomed,) = swept.doomed
        assert doomed.message == message
        assert (doomed.mailbox, doomed.attempt, doomed.charged) == ("orders", 3, 2)
        assert await source.settle([Acked(doomed, Fate.BURIED)]) == [True]
        counted = tally(engine, {"sent": 1, Fate.BURIED: 1})
        assert (await info(engine.broker)).tally == counted

    async def test_without_a_limit_of_its_own_a_mailbox_dooms_no_suspect(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        await self.lost(engine, clock)
        for _ in range(5):
            await self.lost(engine, clock, alone=True)

        swept = await engine.broker.sweep()

        assert swept.doomed == ()
        assert swept.suspects == {"orders"}

    @promised("dooms")
    async def test_what_has_expired_is_doomed(self, engine: Engine, clock: FakeClock) -> None:
        expires_at = clock.now() + timedelta(seconds=5)
        ready, delayed = (a_message(expires_at=expires_at), a_message(expires_at=expires_at))
        await self.sent(engine, ready)
        await self.sent(engine, delayed, delay=60.0)
        await self.sent(engine, a_message())

        before = await engine.broker.sweep()
        await self.pass_time(clock, 5.0)
        after = await engine.broker.sweep()

        assert before.doomed == ()
        assert {d.message.id for d in after.doomed} == {ready.id, delayed.id}
        assert {d.attempt for d in after.doomed} == {0}  # nobody has tried them

    async def test_what_somebody_works_on_does_not_expire_under_him(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        expires_at = clock.now() + timedelta(seconds=5)
        await self.sent(engine, a_message(expires_at=expires_at))
        delivery = await self.received(engine)
        await self.pass_time(clock, 6.0)

        swept = await engine.broker.sweep()

        assert swept.doomed == ()
        assert await engine.broker.source("orders").settle([Acked(delivery)]) == [True]

    @promised("dooms")
    async def test_what_is_doomed_is_claimed(self, engine: Engine, clock: FakeClock) -> None:
        await self.sent(engine, a_message(expires_at=clock.now()))

        first = await engine.broker.sweep(lease=LEASE)
        second = await engine.broker.sweep(lease=LEASE)

        assert (len(first.doomed), len(second.doomed)) == (1, 0)
        assert await self.nothing_left(engine)

    @promised("dooms")
    async def test_a_sweep_that_dies_leaves_the_doomed_as_they_were(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, a_message(expires_at=clock.now()))
        await engine.broker.sweep(lease=LEASE)
        await self.pass_time(clock, LEASE)

        (again,) = (await engine.broker.sweep()).doomed

        assert (again.attempt, again.spared) == (0, 0)

    @promised("dooms")
    async def test_what_was_doomed_and_handed_back_queues_up_anew(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        expires_at = clock.now() + timedelta(seconds=5)
        (first,) = await self.sent(engine, a_message(expires_at=expires_at))
        await self.pass_time(clock, 3.0)
        (second,) = await self.sent(engine)
        await self.pass_time(clock, 2.0)
        (doomed,) = (await engine.broker.sweep()).doomed
        source = engine.broker.source("orders")

        await release(source, doomed)

        deliveries = await source.receive(limit=5, wait=0, lease=LEASE)
        assert [d.message.id for d in deliveries] == [second.id, first.id]

    @promised("dooms")
    async def test_a_sweep_claims_no_more_than_asked_for(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, *(a_message(expires_at=clock.now()) for _ in range(5)))

        few = await engine.broker.sweep(limit=3)
        rest = await engine.broker.sweep(limit=3)

        assert (len(few.doomed), len(rest.doomed)) == (3, 2)

    async def test_nothing_in_a_dead_queue_is_doomed(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        dead = QueueOptions(name="orders-dead", max_attempts=1)
        await engine.broker.create(dead)
        options = QueueOptions(name="orders", dead_queue="orders-dead")
        await engine.broker.create(options)
        await self.sent(engine, a_message(expires_at=clock.now()), to="orders-dead")

        swept = await engine.broker.sweep()

        assert swept.doomed == ()
        assert (await info(engine.broker, "orders-dead")).ready == 1

    @promised("dooms")
    async def test_all_mailboxes_are_swept(self, engine: Engine, clock: FakeClock) -> None:
        await self.sent(engine, a_message(expires_at=clock.now()), to="orders")
        await self.sent(engine, a_message(expires_at=clock.now()), to="returns")

        swept = await engine.broker.sweep()

        assert {d.mailbox for d in swept.doomed} == {"orders", "returns"}
        for doomed in swept.doomed:
            source = engine.broker.source(doomed.mailbox)
            assert await source.settle([Acked(doomed, Fate.BURIED)]) == [True]

    @promised("dooms")
    async def test_what_was_swept_in_one_mailbox_cannot_be_settled_in_another(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        others = {"orders": "returns", "returns": "orders"}
        for mailbox in others:
            await self.sent(engine, a_message(expires_at=clock.now()), to=mailbox)
        doomed = (await engine.broker.sweep()).doomed

        for delivery in doomed:
            elsewhere = engine.broker.source(others[delivery.mailbox])
            assert await elsewhere.extend([delivery], lease=LEASE) == [False]
            assert await elsewhere.settle([Acked(delivery)]) == [False]

        assert len(doomed) == 2
