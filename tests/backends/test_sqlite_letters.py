"""The SQLite office keeps what an office promises, and finds out who meddles."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deadletter.backends.sqlite.engine import Database
from deadletter.backends.sqlite.letters import SqliteLetters
from deadletter.ports import Durability, Features
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.letters_contract import LetterStoreContract


class TestSqliteLetters(LetterStoreContract):
    driver = SqliteLetters

    @pytest.fixture
    async def store(
        self, clock: FakeClock, tmp_path: Path
    ) -> AsyncIterator[SqliteLetters]:
        # The disk is not what is tested here.
        db = Database(tmp_path / "office.db", synchronous="normal", clock=clock)
        features = Features(engine="sqlite", durability=Durability.KILL_SAFE)
        yield SqliteLetters(
            await db.open(), clock=clock, dice=SeededDice(), features=features
        )
        await db.close()
