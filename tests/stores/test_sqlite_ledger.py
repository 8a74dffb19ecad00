"""The SQLite engine keeps what a ledger promises."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deadletter.stores.sqlite import SqliteEngine, open_engine
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.ledger_contract import LedgerContract


class TestSqliteLedger(LedgerContract):
    driver = SqliteEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock, tmp_path: Path) -> AsyncIterator[SqliteEngine]:
        url = f"sqlite:///{tmp_path}/q.db"
        engine = await open_engine(url, clock=clock, dice=SeededDice())
        yield engine
        await engine.close()
