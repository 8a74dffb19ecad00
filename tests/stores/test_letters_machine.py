"""The SQLite office answers like the memory one, whatever is done to them."""

import tempfile
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import settings

from contracts.letters_machine import LettersMachine
from deadletter.ports import Durability, Features
from deadletter.stores.memory.letters import MemoryLetters
from deadletter.stores.sqlite.engine import Database
from deadletter.stores.sqlite.letters import SqliteLetters
from deadletter.testing.fakes import SeededDice

pytestmark = pytest.mark.slow


class SqliteBesideMemory(LettersMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="deadletter-"))

    async def open(self) -> SqliteLetters:
        # The disk is not what is tested here.
        path = self.directory / "office.db"
        self.db = Database(path, synchronous="normal", clock=self.clock)
        features = Features(engine="sqlite", durability=Durability.KILL_SAFE)
        return SqliteLetters(
            await self.db.open(), clock=self.clock, dice=SeededDice(), features=features
        )

    async def close(self) -> None:
        await self.db.close()

    async def open_model(self) -> MemoryLetters:
        return MemoryLetters(clock=self.clock, dice=SeededDice())

    def teardown(self) -> None:
        super().teardown()
        rmtree(self.directory)


TestSqliteBesideMemory = SqliteBesideMemory.TestCase
TestSqliteBesideMemory.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
