"""The SQLite engine keeps what a store of tokens and sessions promises."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.access_contract import AccessContract
from deadletter.stores.sqlite import SqliteEngine, open_engine
from deadletter.testing.fakes import FakeClock, SeededDice


class TestSqliteAccess(AccessContract):
    driver = SqliteEngine

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/q.db"

    @pytest.fixture
    async def engine(self, clock: FakeClock, url: str) -> AsyncIterator[SqliteEngine]:
        engine = await open_engine(url, clock=clock, dice=SeededDice())
        yield engine
        await engine.close()

    @pytest.fixture
    async def neighbour(
        self, engine: SqliteEngine, clock: FakeClock, url: str
    ) -> AsyncIterator[SqliteEngine]:
        neighbour = await open_engine(url, clock=clock, dice=SeededDice())
        yield neighbour
        await neighbour.close()
