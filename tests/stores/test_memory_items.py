"""The memory engine keeps what lease queues promise."""

import pytest

from contracts.items_contract import ItemsContract
from deadletter.stores.memory import MemoryEngine, open_engine
from deadletter.testing.fakes import FakeClock, SeededDice


class TestMemoryItems(ItemsContract):
    driver = MemoryEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock) -> MemoryEngine:
        return await open_engine("memory://", clock=clock, dice=SeededDice())
