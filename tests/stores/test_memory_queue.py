"""The memory engine keeps what mailboxes promise."""

import pytest

from deadletter.core.errors import ConfigError
from deadletter.stores.memory import MemoryEngine, open_engine
from deadletter.testing.atomic_replay_contract import AtomicBurialContract, AtomicReplayContract
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import ClockContract


class TestMemory(QueueContract, ClockContract, AtomicBurialContract, AtomicReplayContract):
    driver = MemoryEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock) -> MemoryEngine:
        return await open_engine("memory://", clock=clock, dice=SeededDice())


async def test_nothing_follows_the_scheme() -> None:
    with pytest.raises(ConfigError, match="nothing follows"):
        await open_engine("memory://a", clock=FakeClock(), dice=SeededDice())
