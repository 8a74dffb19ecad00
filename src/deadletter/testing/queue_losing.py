"""What a mailbox promises when workers die and when time runs out."""

from datetime import timedelta

from deadletter.ports import Acked, Engine, Fate, QueueOptions

from .fakes import FakeClock
from .queue_bench import LEASE, MailboxBench, a_message, info, promised, release, tally


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

    async def test_who_asks_for_suspects_gets_nothing_else(
        self, engine: Engine
    ) -> None:
        await self.sent(engine)
        source = engine.broker.source("orders")

        assert await source.receive(limit=1, wait=0, lease=LEASE, alone=True) == []

    async def test_a_loss_in_company_is_not_charged(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        await self.lost(engine, clock)

        suspect = await self.received(engine, alone=True)

        assert (suspect.attempt, suspect.spared, suspect.charged) == (2, 1, 1)

    async def test_a_loss_alone_is_charged(
        self, engine: Engine, clock: FakeClock
    ) -> None:
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

    async def test_live_claims_are_left_alone(
        self, engine: Engine, clock: FakeClock
    ) -> None:
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
    async def test_what_has_expired_is_doomed(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        expires_at = clock.now() + timedelta(seconds=5)
        ready, delayed = (
            a_message(expires_at=expires_at),
            a_message(expires_at=expires_at),
        )
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
    async def test_what_is_doomed_is_claimed(
        self, engine: Engine, clock: FakeClock
    ) -> None:
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
    async def test_all_mailboxes_are_swept(
        self, engine: Engine, clock: FakeClock
    ) -> None:
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
