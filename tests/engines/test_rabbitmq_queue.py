"""The RabbitMQ engine keeps what mailboxes promise."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deadletter.brokers.rabbitmq.engine import RabbitEngine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import OptionsContract
from engines.rabbitmq_rig import opened
from servers import Server


class TestRabbitMQ(QueueContract, OptionsContract):
    driver = RabbitEngine
    at_once = 0.25
    slack = 5.0

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        """
        Leases run by our clock; delays, which are short here, by the broker's.

        Fractions are left out, so that a moment before it is time is long before, and
        what is late is waited for: both of us may be busy.
        """
        clock.advance(seconds)
        if 1.0 <= seconds <= 5.0:
            await asyncio.sleep(int(seconds) + 0.25)

    @pytest.fixture
    async def engine(
        self, clock: FakeClock, rabbitmq_server: Server
    ) -> AsyncIterator[RabbitEngine]:
        async with opened(rabbitmq_server.url, clock) as engine:
            yield engine
