"""The notebook keeps what mailboxes promise: this is the whole test of a backend."""

from pathlib import Path

import pytest
from notebook import NotebookEngine, open_engine

from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import OptionsContract


class TestNotebook(QueueContract, OptionsContract):
    driver = NotebookEngine  # makes mypy hold it to the ports

    @pytest.fixture
    async def engine(self, tmp_path: Path, clock: FakeClock) -> NotebookEngine:
        url = f"notebook:///{tmp_path}/orders.json"
        return await open_engine(url, clock=clock, dice=SeededDice())
