"""The memory engine keeps what a store of tokens and sessions promises."""

import pytest

from contracts.access_contract import AccessContract
from deadletter.stores.memory import MemoryEngine, open_engine
from deadletter.testing.fakes import FakeClock, SeededDice


class TestMemoryAccess(AccessContract):
    driver = MemoryEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock) -> MemoryEngine:
        return await open_engine("memory://", clock=clock, dice=SeededDice())

    @pytest.fixture
    def neighbour(self, engine: MemoryEngine) -> MemoryEngine:
        return engine  # it is for one process
