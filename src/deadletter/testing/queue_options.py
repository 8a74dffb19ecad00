"""Contracts of mailboxes themselves: options, counts, dead queues (P7)."""

import asyncio

import pytest

from deadletter.core.errors import ConfigError, Conflict, DeadLetterError, NotFound
from deadletter.ports import Acked, Engine, Fate, QueueOptions

from .fakes import FakeClock
from .queue_bench import LEASE, MailboxBench, a_message, drained, info, promised, release, tally


class OptionsContract(MailboxBench):
    """Mailboxes are made, changed, listed and deleted; a DLQ never has a DLQ."""

    async def test_a_mailbox_is_made_when_it_is_used(self, engine: Engine) -> None:
        await self.sent(engine, to="orders")
        await engine.broker.source("returns").receive(limit=1, wait=0, lease=LEASE)

        names = [queue.options.name for queue in await engine.broker.queues()]

        assert names == ["orders", "returns"]

    async def test_options_are_kept(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="dead"))
        options = QueueOptions(
            name="orders", dead_queue="dead", max_attempts=7, expire_after=1.5, reference="ask Anna"
        )

        await engine.broker.create(options)

        assert (await info(engine.broker)).options == options

    async def test_a_plain_mailbox_has_no_limits_of_its_own(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="orders"))

        for attempts in (0, 1, 1000):
            assert await engine.broker.conflict("orders", attempts=attempts) is None

    async def test_creating_the_same_again_is_fine(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="orders", max_attempts=7))
        await self.sent(engine)

        await engine.broker.create(QueueOptions(name="orders", max_attempts=7))

        assert (await info(engine.broker)).ready == 1

    async def test_creating_it_with_other_options_is_refused(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="orders", max_attempts=7))

        with pytest.raises(Conflict, match="update it instead"):
            await engine.broker.create(QueueOptions(name="orders", max_attempts=8))

        assert (await info(engine.broker)).options.max_attempts == 7

    async def test_options_can_be_changed(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="orders", max_attempts=7))

        await engine.broker.update(QueueOptions(name="orders", reference="new"))

        options = QueueOptions(name="orders", reference="new")
        assert (await info(engine.broker)).options == options

    async def test_what_does_not_exist_cannot_be_changed_or_deleted(self, engine: Engine) -> None:
        with pytest.raises(NotFound, match="create it first"):
            await engine.broker.update(QueueOptions(name="orders"))
        with pytest.raises(NotFound):
            await engine.broker.delete("orders")

    async def test_a_dead_queue_must_exist_and_be_another(self, engine: Engine) -> None:
        with pytest.raises(ConfigError, match="cannot reference itself"):
            await engine.broker.create(QueueOptions(name="a", dead_queue="a"))
        with pytest.raises(ConfigError, match="does not exist; create it first"):
            await engine.broker.create(QueueOptions(name="a", dead_queue="b"))

        assert await engine.broker.queues() == []

    async def test_a_dead_queue_never_has_a_dead_queue(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="c"))
        await engine.broker.create(QueueOptions(name="b", dead_queue="c"))
        refusal = "cannot have its own dead_queue"

        with pytest.raises(ConfigError, match=refusal):  # a -> b -> c
            await engine.broker.create(QueueOptions(name="a", dead_queue="b"))
        await engine.broker.create(QueueOptions(name="z"))
        with pytest.raises(ConfigError, match=refusal):  # b -> c -> z
            await engine.broker.update(QueueOptions(name="c", dead_queue="z"))

    async def test_two_who_name_each_other_at_once_do_not_both_succeed(
        self, engine: Engine
    ) -> None:
        await engine.broker.create(QueueOptions(name="a"))
        await engine.broker.create(QueueOptions(name="b"))

        answers = await asyncio.gather(
            engine.broker.update(QueueOptions(name="a", dead_queue="b")),
            engine.broker.update(QueueOptions(name="b", dead_queue="a")),
            return_exceptions=True,
        )

        assert sum(isinstance(answer, ConfigError) for answer in answers) == 1

    async def test_messages_of_a_dead_queue_do_not_expire(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="mortal", expire_after=9.0))
        await engine.broker.create(QueueOptions(name="dead"))
        await engine.broker.create(QueueOptions(name="orders", dead_queue="dead"))

        with pytest.raises(ConfigError, match="never expire"):
            await engine.broker.update(QueueOptions(name="dead", expire_after=9.0))
        with pytest.raises(ConfigError, match="never expire"):
            await engine.broker.update(QueueOptions(name="orders", dead_queue="mortal"))

    @pytest.mark.parametrize(
        "options",
        [
            {"name": ""},
            {"name": "x" * 513},
            {"name": "two words"},
            {"name": "a~b"},
            {"name": "bell\x07"},
            {"name": "a", "max_attempts": -1},
            {"name": "a", "max_attempts": 65_537},
            {"name": "a", "expire_after": 0.0},
            {"name": "a", "expire_after": -1.0},
            {"name": "a", "expire_after": float("inf")},
            {"name": "a", "expire_after": float("nan")},
            {"name": "a", "reference": "x" * 2001},
        ],
    )
    async def test_impossible_options_are_refused(
        self, engine: Engine, options: dict[str, object]
    ) -> None:
        with pytest.raises(ConfigError):
            await engine.broker.create(QueueOptions(**options))  # type: ignore[arg-type]

        assert await engine.broker.queues() == []

    async def test_impossible_names_are_refused_everywhere(self, engine: Engine) -> None:
        with pytest.raises(ConfigError):
            engine.broker.source("a b")
        with pytest.raises(ConfigError):
            engine.broker.sink("")

    @promised("dooms")
    async def test_a_mailbox_gives_its_messages_an_expiry(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await engine.broker.create(QueueOptions(name="orders", expire_after=10.0))
        (message,) = await self.sent(engine)

        await self.pass_time(clock, 9.0)
        before = await engine.broker.sweep()
        await self.pass_time(clock, 1.0)
        after = await engine.broker.sweep()

        assert before.doomed == ()
        (doomed,) = after.doomed
        assert doomed.message.id == message.id
        assert doomed.message.expires_at == clock.now()

    async def test_deleting_says_how_many_went_with_it(self, engine: Engine) -> None:
        await self.sent(engine, a_message(), a_message(), a_message())
        await self.received(engine)

        assert await engine.broker.delete("orders") == 3
        assert await engine.broker.queues() == []

    @promised("tallies")
    async def test_deleted_messages_are_accounted_for(self, engine: Engine) -> None:
        await self.sent(engine, a_message(), a_message())
        await engine.broker.source("orders").settle([Acked(await self.received(engine))])
        await engine.broker.delete("orders")

        await self.sent(engine)

        counts = await info(engine.broker)
        assert counts.tally == {"sent": 3, Fate.HANDLED: 1, Fate.PURGED: 1}
        assert counts.ready == 1

    async def test_a_deleted_mailbox_starts_anew(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="orders", max_attempts=7))
        await engine.broker.delete("orders")

        await self.sent(engine)

        assert (await info(engine.broker)).options == QueueOptions(name="orders")

    async def test_a_delivery_of_a_deleted_mailbox_cannot_be_settled(self, engine: Engine) -> None:
        await self.sent(engine)
        delivery = await self.received(engine)
        source = engine.broker.source("orders")
        await engine.broker.delete("orders")

        assert await source.settle([Acked(delivery)]) == [False]

    async def test_a_dead_queue_in_use_is_not_deleted(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="dead"))
        await engine.broker.create(QueueOptions(name="orders", dead_queue="dead"))
        await self.sent(engine, to="dead")

        with pytest.raises(Conflict, match="dead queue of orders"):
            await engine.broker.delete("dead")

        assert (await info(engine.broker, "dead")).ready == 1

    async def test_by_force_a_dead_queue_is_deleted_and_detached(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="dead"))
        await engine.broker.create(QueueOptions(name="orders", dead_queue="dead", max_attempts=3))

        await engine.broker.delete("dead", force=True)

        options = QueueOptions(name="orders", max_attempts=3)
        assert (await info(engine.broker)).options == options

    @promised("sees_delayed")
    async def test_counts_tell_where_everything_is(self, engine: Engine, clock: FakeClock) -> None:
        await self.sent(engine)
        await self.lost(engine, clock)
        sent_at = clock.now()
        await self.sent(engine, *(a_message(sent_at=sent_at) for _ in range(3)))
        await self.sent(engine, delay=60.0)
        await self.received(engine)

        counts = await info(engine.broker)

        assert (counts.ready, counts.delayed) == (2, 1)
        assert (counts.claimed, counts.suspects) == (1, 1)
        assert counts.oldest_at == sent_at
        assert counts.tally == tally(engine, {"sent": 5})

    async def test_refused_changes_change_nothing(self, engine: Engine) -> None:
        await engine.broker.create(QueueOptions(name="dead"))
        await engine.broker.create(QueueOptions(name="orders", dead_queue="dead"))
        before = await engine.broker.queues()

        for options in (
            QueueOptions(name="dead", dead_queue="orders"),
            QueueOptions(name="orders", dead_queue="orders"),
            QueueOptions(name="orders", dead_queue="missing"),
            QueueOptions(name="orders", max_attempts=-1),
        ):
            with pytest.raises(DeadLetterError):
                await engine.broker.update(options)

        assert await engine.broker.queues() == before


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
