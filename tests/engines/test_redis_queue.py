"""The Redis engine keeps what mailboxes promise."""

from collections.abc import AsyncIterator

import pytest

from contracts.queue_damage import DamageContract
from deadletter.brokers.redis.engine import RedisEngine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import ClockContract, OptionsContract
from engines.redis_rig import fresh, on_clock
from servers import Server


class TestRedis(QueueContract, ClockContract, DamageContract, OptionsContract):
    driver = RedisEngine
    at_once = 0.25

    @pytest.fixture
    async def engine(self, clock: FakeClock, redis_server: Server) -> AsyncIterator[RedisEngine]:
        engine = await on_clock(fresh(redis_server.url), clock)
        yield engine
        await engine.close()
