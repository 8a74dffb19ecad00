"""FIFO queues: order within a group, and what it costs."""

from msgspec import structs

from deadletter.brokers.sqs.engine import SqsEngine
from deadletter.core.message import Lineage
from deadletter.ports import Acked
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import LEASE, a_message, drained, release
from engines.sqs_rig import SqsBench, opened

FIFO = "orders.fifo"


class TestFifo(SqsBench):
    async def test_one_message_of_a_group_is_out_at_a_time(self, engine: SqsEngine) -> None:
        a = [a_message(key="a") for _ in range(3)]
        b = [a_message(key="b") for _ in range(3)]
        await self.sent(engine, *a, *b, to=FIFO)
        source = engine.broker.source(FIFO)

        first = await source.receive(limit=10, wait=0, lease=LEASE)
        await source.settle([Acked(d) for d in first if d.message.key == "a"])
        second = await source.receive(limit=10, wait=0, lease=LEASE)

        assert {d.message.id for d in first} == {a[0].id, b[0].id}
        assert {d.message.id for d in second} == {a[1].id}

    async def test_a_released_message_holds_up_its_group_and_no_other(
        self, engine: SqsEngine, clock: FakeClock
    ) -> None:
        one, two, other = (a_message(key=key) for key in ("a", "a", "b"))
        await self.sent(engine, one, two, to=FIFO)
        source = engine.broker.source(FIFO)
        (failed,) = await source.receive(limit=10, wait=0, lease=LEASE)
        await release(source, failed, 60.0)
        await self.sent(engine, other, to=FIFO)

        meanwhile = await source.receive(limit=10, wait=0, lease=LEASE)
        await self.pass_time(clock, 60.0)
        later = await source.receive(limit=10, wait=0, lease=LEASE)

        assert [d.message.id for d in meanwhile] == [other.id]
        assert one.id in {d.message.id for d in later}
        assert two.id not in {d.message.id for d in later}

    async def test_without_keys_the_whole_queue_is_in_order(self, engine: SqsEngine) -> None:
        sending = await self.sent(engine, *(a_message() for _ in range(25)), to=FIFO)
        source = engine.broker.source(FIFO)
        seen = []

        while found := await source.receive(limit=10, wait=0, lease=LEASE):
            seen += [d.message.id for d in found]
            await source.settle([Acked(d) for d in found])

        assert seen == [message.id for message in sending]

    async def test_the_story_and_the_attempts_are_known_while_the_process_lives(
        self, engine: SqsEngine
    ) -> None:
        await self.sent(engine, to=FIFO)
        source = engine.broker.source(FIFO)
        await release(source, await self.received(engine, of=FIFO), history="told")
        told = await self.received(engine, of=FIFO)
        await release(source, told, charged=False)

        again = await self.received(engine, of=FIFO)

        assert (told.attempt, told.spared, told.history) == (2, 0, "told")
        assert (again.attempt, again.spared, again.history) == (3, 1, "told")

    async def test_after_that_sqs_still_knows_the_attempts(
        self, engine: SqsEngine, url: str, clock: FakeClock
    ) -> None:
        await self.sent(engine, to=FIFO)
        source = engine.broker.source(FIFO)
        await release(source, await self.received(engine, of=FIFO), history="told")
        other = await opened(url, clock)

        again = await self.received(other, of=FIFO)

        assert (again.attempt, again.history, again.suspect) == (2, "", False)
        assert not source.features.keeps_history
        await other.close()

    async def test_duplicates_are_stored_once_and_replays_are_stored_again(
        self, engine: SqsEngine
    ) -> None:
        message = a_message()
        lineage = Lineage(letter_id="l", generation=1, campaign="c")
        replayed = structs.replace(message, lineage=lineage)

        await self.sent(engine, message, to=FIFO)
        await self.sent(engine, message, to=FIFO)
        await self.sent(engine, replayed, to=FIFO)

        source = engine.broker.source(FIFO)
        (first,) = await drained(source)
        await source.settle([Acked(first)])
        (second,) = await drained(source)
        await source.settle([Acked(second)])
        assert [first.message, second.message] == [message, replayed]
        assert await drained(source) == []

    async def test_a_delay_holds_back_its_group(self, engine: SqsEngine, clock: FakeClock) -> None:
        (late,) = await self.sent(engine, a_message(key="a"), to=FIFO, delay=90_000)
        source = engine.broker.source(FIFO)

        for _ in range(9):
            assert await source.receive(limit=10, wait=0, lease=LEASE) == []
            await self.pass_time(clock, 10_000)

        delivery = await self.received(engine, of=FIFO)
        assert (delivery.message, delivery.attempt) == (late, 1)

    async def test_suspects_are_not_told_apart(self, engine: SqsEngine) -> None:
        source = engine.broker.source(FIFO)

        assert not source.features.finds_suspects
        assert await source.receive(limit=1, wait=0, lease=LEASE, alone=True) == []
