"""The PostgreSQL engine keeps what a store of tokens and sessions promises."""

from collections.abc import AsyncIterator

import pytest

from contracts.access_contract import AccessContract
from deadletter.stores.postgresql.engine import PostgresqlEngine, open_database
from deadletter.testing.fakes import FakeClock
from engines.postgresql_time import told_database, told_time

__all__ = ["told_database"]


class TestPostgresqlAccess(AccessContract):
    driver = PostgresqlEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock, told_database: str) -> AsyncIterator[PostgresqlEngine]:
        async with told_time(told_database, clock):
            engine = await open_database(told_database, clock)
            yield engine
            await engine.close()

    @pytest.fixture
    async def neighbour(
        self, engine: PostgresqlEngine, clock: FakeClock, told_database: str
    ) -> AsyncIterator[PostgresqlEngine]:
        neighbour = await open_database(told_database, clock)
        yield neighbour
        await neighbour.close()
