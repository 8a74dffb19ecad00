"""The PostgreSQL engine answers like the memory one, whatever is done to it."""

from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, ClassVar, TypeVar

import pytest

from contracts.items_machine import ItemsMachine
from contracts.letters_machine import LettersMachine
from contracts.queue_machine import QueueMachine
from deadletter.ports import Engine, LetterStore
from deadletter.stores import memory
from deadletter.stores.memory.letters import MemoryLetters
from deadletter.stores.postgresql.engine import open_database
from deadletter.testing.fakes import FakeClock, SeededDice
from engines.machines import runs
from engines.postgresql_time import ToldTime, told_database, told_time

T = TypeVar("T")

__all__ = ["told_database"]

pytestmark = pytest.mark.slow


class _Told:
    """Keeps the server's clock where the machine's is."""

    url: ClassVar[str]
    clock: FakeClock

    def __init__(self) -> None:
        super().__init__()
        self._stack = AsyncExitStack()
        self._time: ToldTime | None = None
        self._told = self.clock.now()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return super()._run(self._in_time(work))  # type: ignore[misc,no-any-return]

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        if self._time is None:
            opening = told_time(self.url, self.clock)
            self._time = await self._stack.enter_async_context(opening)
        elif self._told != self.clock.now():
            await self._time.tell()
        self._told = self.clock.now()
        return await work

    def teardown(self) -> None:
        self._run(self._stack.aclose())
        super().teardown()  # type: ignore[misc]


class QueueBesideMemory(_Told, QueueMachine):
    async def open(self) -> Engine:
        return await open_database(self.url, self.clock)

    async def open_model(self) -> Engine:
        return await memory.open_engine("memory://", clock=self.clock, dice=SeededDice())


class ItemsBesideMemory(_Told, ItemsMachine):
    async def open(self) -> Engine:
        return await open_database(self.url, self.clock)

    async def open_model(self) -> Engine:
        return await memory.open_engine("memory://", clock=self.clock, dice=SeededDice())


class LettersBesideMemory(_Told, LettersMachine):
    async def open(self) -> LetterStore:
        self.engine = await open_database(self.url, self.clock)
        assert self.engine.letters is not None
        return self.engine.letters

    async def close(self) -> None:
        await self.engine.close()

    async def open_model(self) -> MemoryLetters:
        return MemoryLetters(clock=self.clock, dice=SeededDice())


@pytest.fixture(autouse=True)
def _where(told_database: str) -> None:
    _Told.url = told_database


TestQueueBesideMemory = QueueBesideMemory.TestCase
TestQueueBesideMemory.settings = runs(40, 30)
TestItemsBesideMemory = ItemsBesideMemory.TestCase
TestItemsBesideMemory.settings = runs(25, 25)
TestLettersBesideMemory = LettersBesideMemory.TestCase
TestLettersBesideMemory.settings = runs(25, 20)
