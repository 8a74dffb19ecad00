"""The MongoDB engine answers like the memory one, whatever is done to it."""

from typing import ClassVar

import pytest

from contracts.ledger_machine import LedgerMachine
from contracts.letters_machine import LettersMachine
from deadletter.ports import Engine, LetterStore
from deadletter.stores import memory
from deadletter.stores.memory.letters import MemoryLetters
from deadletter.testing.fakes import SeededDice
from engines.machines import runs
from engines.mongodb_rig import emptied, on_clock
from servers import Server

pytestmark = pytest.mark.slow


class _Where:
    """The server, which is known when the tests run."""

    server: ClassVar[str]


class LettersBesideMemory(LettersMachine):
    url: str | None = None

    async def open(self) -> LetterStore:
        self.url = self.url or await emptied(_Where.server)
        self.engine = await on_clock(self.url, self.clock)
        assert self.engine.letters is not None
        return self.engine.letters

    async def close(self) -> None:
        await self.engine.close()

    async def open_model(self) -> MemoryLetters:
        return MemoryLetters(clock=self.clock, dice=SeededDice())


class LedgerBesideMemory(LedgerMachine):
    async def open(self) -> Engine:
        return await on_clock(await emptied(_Where.server), self.clock)

    async def open_model(self) -> Engine:
        return await memory.open_engine("memory://", clock=self.clock, dice=SeededDice())


@pytest.fixture(autouse=True)
def _where(mongodb_server: Server) -> None:
    _Where.server = mongodb_server.url


TestLettersBesideMemory = LettersBesideMemory.TestCase
TestLettersBesideMemory.settings = runs(20, 20)
TestLedgerBesideMemory = LedgerBesideMemory.TestCase
TestLedgerBesideMemory.settings = runs(20, 20)
