"""The MongoDB engine keeps what a ledger promises."""

from collections.abc import AsyncIterator

import pytest

from deadletter.backends.mongodb.engine import MongodbEngine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.ledger_contract import LedgerContract
from engines.mongodb_rig import emptied, on_clock
from servers import Server


class TestMongodbLedger(LedgerContract):
    driver = MongodbEngine

    @pytest.fixture
    async def engine(
        self, clock: FakeClock, mongodb_server: Server
    ) -> AsyncIterator[MongodbEngine]:
        engine = await on_clock(await emptied(mongodb_server.url), clock)
        yield engine
        await engine.close()
