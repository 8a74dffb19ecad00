"""The SQLite mailboxes answer like the memory ones, whatever is done to them."""

import tempfile
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import settings

from contracts.queue_machine import QueueMachine
from deadletter.ports import Engine
from deadletter.stores import memory, sqlite
from deadletter.testing.fakes import SeededDice

pytestmark = pytest.mark.slow


class SqliteBesideMemory(QueueMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="deadletter-"))

    async def open(self) -> Engine:
        # The disk is not what is tested here.
        url = f"sqlite:///{self.directory}/q.db?synchronous=normal"
        return await sqlite.open_engine(url, clock=self.clock, dice=SeededDice())

    async def open_model(self) -> Engine:
        return await memory.open_engine("memory://", clock=self.clock, dice=SeededDice())

    def teardown(self) -> None:
        super().teardown()
        rmtree(self.directory)


TestSqliteBesideMemory = SqliteBesideMemory.TestCase
TestSqliteBesideMemory.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
