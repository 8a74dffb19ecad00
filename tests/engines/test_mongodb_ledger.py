"""The MongoDB engine keeps what a ledger promises."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from deadletter.ports import LedgerKey, LedgerState
from deadletter.stores.mongodb.engine import MongodbEngine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.ledger_contract import LedgerContract
from engines.mongodb_rig import database_of, emptied, on_clock
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

    async def test_a_record_tells_the_path_of_its_key(
        self, engine: MongodbEngine, clock: FakeClock
    ) -> None:
        ledger, key = engine.ledger, LedgerKey("orders", "k-1")
        assert ledger is not None
        ends = [LedgerState.FAILED, LedgerState.DEAD_LETTERED, LedgerState.PROCESSED]

        for generation, end in zip((0, 0, 1), ends, strict=True):
            wanted = replace(key, generation=generation)
            (claim,) = await ledger.begin([wanted], lease=60)
            for _ in range(2):  # told twice, it is one step
                await ledger.finish([(claim, end)], ttl=60)
            clock.advance(1)

        record = await database_of(engine).there.ledger.find_one({"key": "k-1"})
        assert record is not None
        assert [step["state"] for step in record["path"]] == [
            *("received", "processing", "failed"),
            *("processing", "failed", "dead_lettered"),
            *("received", "processing", "processed"),
        ]
        times = [step["at"] for step in record["path"]]
        assert times == sorted(times)
        assert times[0] < times[-1]
