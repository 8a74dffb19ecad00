"""Both engines keep what is promised of mailboxes themselves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deadletter.stores import memory, sqlite
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_options import OptionsContract


class TestMemoryOptions(OptionsContract):
    driver = memory.MemoryEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock) -> memory.MemoryEngine:
        return await memory.open_engine("memory://", clock=clock, dice=SeededDice())


class TestSqliteOptions(OptionsContract):
    driver = sqlite.SqliteEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock, tmp_path: Path) -> AsyncIterator[sqlite.SqliteEngine]:
        url = f"sqlite:///{tmp_path}/q.db"
        engine = await sqlite.open_engine(url, clock=clock, dice=SeededDice())
        yield engine
        await engine.close()
