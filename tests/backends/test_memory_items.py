"""The memory engine keeps what lease queues promise."""

import pytest

from deadletter.backends.memory import MemoryEngine, open_engine
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.items_contract import ItemsContract


class TestMemoryItems(ItemsContract):
    driver = MemoryEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock) -> MemoryEngine:
        return await open_engine("memory://", clock=clock, dice=SeededDice())
