"""The memory engine keeps what a ledger promises."""

import pytest

from deadletter.stores.memory import MemoryEngine, open_engine
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.ledger_contract import LedgerContract


class TestMemoryLedger(LedgerContract):
    driver = MemoryEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock) -> MemoryEngine:
        return await open_engine("memory://", clock=clock, dice=SeededDice())
