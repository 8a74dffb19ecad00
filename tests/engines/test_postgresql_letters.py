"""The PostgreSQL office keeps what an office promises."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from deadletter.ports import LetterStore
from deadletter.stores.postgresql.engine import open_database
from deadletter.stores.postgresql.letters import PostgresqlLetters
from deadletter.testing.fakes import FakeClock
from deadletter.testing.letters_contract import LetterStoreContract
from engines.postgresql_time import told_database, told_later, told_time

__all__ = ["told_database"]


class TestPostgresqlLetters(LetterStoreContract):
    driver = PostgresqlLetters

    @pytest.fixture
    async def store(self, clock: FakeClock, told_database: str) -> AsyncIterator[LetterStore]:
        async with told_time(told_database, clock):
            engine = await open_database(told_database, clock)
            assert engine.letters is not None
            yield engine.letters
            await engine.close()

    @pytest.fixture
    def later(
        self, store: LetterStore, clock: FakeClock, told_database: str
    ) -> Callable[[float], Awaitable[None]]:
        return told_later(told_database, clock)
