"""PostgreSQL behind a real pgbouncer in transaction mode keeps the same promises."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit

import pytest

from deadletter.ports import LetterStore
from deadletter.stores.postgresql.engine import PostgresqlEngine, open_database
from deadletter.stores.postgresql.letters import PostgresqlLetters
from deadletter.testing.atomic_replay_contract import AtomicBurialContract, AtomicReplayContract
from deadletter.testing.fakes import FakeClock
from deadletter.testing.ledger_contract import LedgerContract
from deadletter.testing.letters_contract import LetterStoreContract
from deadletter.testing.queue_contract import QueueContract
from engines.postgresql_time import ToldTime, told_database, told_later, told_time, within
from servers import Missing, Server
from servers.fixtures import do_without
from servers.pgbouncer import PgBouncer

__all__ = ["told_database"]


@pytest.fixture(scope="module")
def bounced(postgresql_server: Server, told_database: str) -> Iterator[str]:
    """The way to the told database through pgbouncer, and past it to be woken up."""
    try:
        bouncer = PgBouncer(postgresql_server)
    except Missing as missing:
        do_without(missing)
    try:
        bouncer.start()
        name = urlsplit(told_database).path[1:]
        past = quote(told_database, safe="")
        yield within(bouncer.url, name, f"pgbouncer=1&listen={past}")
    finally:
        bouncer.close()


class _Bounced:
    time: ToldTime

    @asynccontextmanager
    async def opened(
        self, clock: FakeClock, database: str, bounced: str
    ) -> AsyncIterator[PostgresqlEngine]:
        async with told_time(database, clock) as self.time:
            engine = await open_database(bounced, clock)
            yield engine
            await engine.close()

    @pytest.fixture
    async def engine(
        self, clock: FakeClock, told_database: str, bounced: str
    ) -> AsyncIterator[PostgresqlEngine]:
        async with self.opened(clock, told_database, bounced) as engine:
            yield engine

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        clock.advance(seconds)
        await self.time.tell()


class TestBounced(_Bounced, QueueContract, AtomicBurialContract, AtomicReplayContract):
    driver = PostgresqlEngine
    at_once = 0.15


class TestBouncedLedger(_Bounced, LedgerContract):
    driver = PostgresqlEngine


class TestBouncedLetters(_Bounced, LetterStoreContract):
    driver = PostgresqlLetters

    @pytest.fixture
    async def store(
        self, clock: FakeClock, told_database: str, bounced: str
    ) -> AsyncIterator[LetterStore]:
        async with self.opened(clock, told_database, bounced) as engine:
            assert engine.letters is not None
            yield engine.letters

    @pytest.fixture
    def later(
        self, store: LetterStore, clock: FakeClock, told_database: str
    ) -> Callable[[float], Awaitable[None]]:
        return told_later(told_database, clock)
