"""The Redis engine keeps what a ledger promises."""

from collections.abc import AsyncIterator

import pytest

from deadletter.brokers.redis.engine import RedisEngine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.ledger_contract import LedgerContract
from engines.redis_rig import fresh, on_clock
from servers import Server


class TestRedisLedger(LedgerContract):
    driver = RedisEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock, redis_server: Server) -> AsyncIterator[RedisEngine]:
        engine = await on_clock(fresh(redis_server.url), clock)
        yield engine
        await engine.close()
