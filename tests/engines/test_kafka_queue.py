"""The Kafka engine keeps what mailboxes promise."""

from collections.abc import AsyncIterator, Sequence

import pytest

from deadletter.brokers.kafka.engine import KafkaEngine
from deadletter.core.message import Message
from deadletter.ports import Acked, Engine, QueueOptions
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import a_message, info
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import ClockContract, OptionsContract
from engines.kafka_rig import fresh, opened, see_all
from servers import Server


class TestKafka(QueueContract, ClockContract, OptionsContract):
    """
    A member of a group sweeps what it has in hand, so it has to have it.

    Whoever sends here works the mailbox as well.
    """

    driver = KafkaEngine
    patience = 15.0
    at_once = 0.25

    @pytest.fixture
    async def engine(self, clock: FakeClock, kafka_server: Server) -> AsyncIterator[KafkaEngine]:
        self.opened = await opened(fresh(kafka_server.url), clock)
        self.worked: set[str] = set()
        yield self.opened
        await self.opened.close()

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        await super().pass_time(clock, seconds)
        for mailbox in self.worked:
            await see_all(self.opened, mailbox)

    async def sent(
        self, engine: Engine, *messages: Message, to: str = "orders", delay: float = 0.0
    ) -> Sequence[Message]:
        sending = await super().sent(engine, *messages, to=to, delay=delay)
        await see_all(self.opened, to)
        self.worked.add(to)
        return sending

    async def test_deleted_messages_are_accounted_for(self, engine: Engine) -> None:
        # Kafka keeps nothing of a deleted topic: not even how much was handled.
        await self.sent(engine, a_message(), a_message())
        await engine.broker.source("orders").settle([Acked(await self.received(engine))])

        assert await engine.broker.delete("orders") == 1

        await self.sent(engine)
        assert (await info(engine.broker)).tally == {"sent": 1}
        assert (await info(engine.broker)).options == QueueOptions(name="orders")
