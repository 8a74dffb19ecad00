"""The SQS engine keeps what mailboxes promise, as far as SQS can."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from deadletter.brokers.sqs.engine import SqsEngine
from deadletter.ports import Acked, Engine, QueueOptions, Released
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import LEASE, a_message, info, soon
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import OptionsContract
from engines.sqs_rig import SqsBench, looking, opened


class TestSqs(SqsBench, QueueContract, OptionsContract):
    driver = SqsEngine
    at_once = 1.0

    @pytest.fixture
    async def engine(self, clock: FakeClock, url: str) -> AsyncIterator[SqsEngine]:
        engine = looking(await opened(url, clock))
        yield engine
        await engine.close()

    async def test_counts_tell_where_everything_is(self, engine: Engine, clock: FakeClock) -> None:
        """As elsewhere, but for how old the oldest is, which SQS does not tell."""
        await self.sent(engine)
        await self.lost(engine, clock)
        await self.sent(engine, *(a_message() for _ in range(3)))
        await self.sent(engine, delay=60.0)
        await self.received(engine)

        counts = await info(engine.broker)

        assert (counts.ready, counts.delayed) == (2, 1)
        assert (counts.claimed, counts.suspects) == (1, 1)

    async def test_a_mailbox_gives_its_messages_an_expiry(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        """Nobody but who receives it learns of it: SQS cannot be searched."""
        await engine.broker.create(QueueOptions(name="orders", expire_after=10.0))
        await self.sent(engine)

        delivery = await self.received(engine)

        assert delivery.message.expires_at == clock.now() + timedelta(seconds=10)

    async def test_only_the_fenced_ones_of_a_batch_are_refused(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        """As elsewhere; SQS counts what is out of its lease as ready at once."""
        await self.sent(engine, *(a_message() for _ in range(6)))
        source = engine.broker.source("orders")
        short = await source.receive(limit=3, wait=0, lease=1.0)
        long = await source.receive(limit=3, wait=0, lease=LEASE)
        mixed = [d for pair in zip(short, long, strict=True) for d in pair]
        await self.pass_time(clock, 2.0)

        extended = await source.extend(mixed, lease=LEASE)
        settled = await source.settle(
            [Acked(d) if i < 4 else Released(d) for i, d in enumerate(mixed)]
        )

        assert extended == settled == [False, True] * 3
        counts = await info(engine.broker)
        assert (counts.ready, counts.claimed) == (4, 0)

    async def test_a_waiting_receive_notices_what_falls_due(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        """As elsewhere; but SQS only knows whole seconds."""
        waiting = await self._waiting(engine)
        await self.sent(engine, delay=0.03)

        await self.pass_time(clock, 1.0)

        await soon(waiting, within=self.patience)
        assert len(waiting.result()) == 1
