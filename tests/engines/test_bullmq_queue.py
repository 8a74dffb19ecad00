"""Queues of BullMQ keep what mailboxes promise."""

from collections.abc import AsyncIterator

import pytest

from deadletter.brokers.bullmq.engine import BullEngine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import ClockContract, OptionsContract
from engines.bullmq_rig import fresh, on_clock
from servers import Server


class TestBullMQ(QueueContract, ClockContract, OptionsContract):
    driver = BullEngine
    at_once = 0.25

    @pytest.fixture
    async def engine(self, clock: FakeClock, redis_server: Server) -> AsyncIterator[BullEngine]:
        engine = await on_clock(fresh(redis_server.url), clock)
        yield engine
        await engine.close()
