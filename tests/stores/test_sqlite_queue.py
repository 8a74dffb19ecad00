"""The SQLite engine keeps what mailboxes promise."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.queue_damage import DamageContract
from deadletter.stores.sqlite import SqliteEngine, open_engine
from deadletter.testing.atomic_replay_contract import AtomicBurialContract, AtomicReplayContract
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import ClockContract


class TestSqlite(
    QueueContract, ClockContract, DamageContract, AtomicBurialContract, AtomicReplayContract
):
    driver = SqliteEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock, tmp_path: Path) -> AsyncIterator[SqliteEngine]:
        url = f"sqlite:///{tmp_path}/q.db"
        engine = await open_engine(url, clock=clock, dice=SeededDice())
        yield engine
        await engine.close()
