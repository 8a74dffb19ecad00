"""The PostgreSQL engine keeps what a ledger promises."""

from collections.abc import AsyncIterator

import pytest

from deadletter.stores.postgresql.engine import PostgresqlEngine, open_database
from deadletter.testing.fakes import FakeClock
from deadletter.testing.ledger_contract import LedgerContract
from engines.postgresql_time import ToldTime, told_database, told_time

__all__ = ["told_database"]


class TestPostgresqlLedger(LedgerContract):
    driver = PostgresqlEngine
    time: ToldTime

    @pytest.fixture
    async def engine(self, clock: FakeClock, told_database: str) -> AsyncIterator[PostgresqlEngine]:
        async with told_time(told_database, clock) as self.time:
            engine = await open_database(told_database, clock)
            yield engine
            await engine.close()

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        await super().pass_time(clock, seconds)
        await self.time.tell()
