"""The RabbitMQ engine keeps what mailboxes promise."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deadletter.backends.rabbitmq.engine import RabbitEngine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import OptionsContract
from engines.rabbitmq_rig import opened
from servers import Server


class TestRabbitMQ(QueueContract, OptionsContract):
    driver = RabbitEngine

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        """Leases run by our clock; delays, which are short here, by the broker's."""
        clock.advance(seconds)
        if seconds <= 5.0:
            await asyncio.sleep(seconds + 0.05)

    @pytest.fixture
    async def engine(
        self, clock: FakeClock, rabbitmq_server: Server
    ) -> AsyncIterator[RabbitEngine]:
        async with opened(rabbitmq_server.url, clock) as engine:
            yield engine
