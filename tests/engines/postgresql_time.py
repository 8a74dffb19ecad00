"""Databases of their own for tests, whose server goes by a clock we can set."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from secrets import token_hex
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from deadletter.stores.postgresql.address import read_url
from deadletter.stores.postgresql.engine import prepare
from deadletter.testing.fakes import FakeClock
from servers import Server

_SET_APART = """
CREATE TABLE public.told_time (at timestamptz NOT NULL);
INSERT INTO public.told_time VALUES (now());
CREATE OR REPLACE FUNCTION deadletter.clock() RETURNS timestamptz
    LANGUAGE sql STABLE AS 'SELECT at FROM public.told_time';
"""
_TELL = "UPDATE public.told_time SET at = $1"
_TABLES = """
SELECT tablename FROM pg_tables
WHERE schemaname = 'deadletter' AND tablename NOT IN ('migrations', 'office')
"""
_RESET = """
UPDATE deadletter.office
SET kept = 0, purged = 0, expired = 0, audit_seq = 0, audit_hash = '',
    letter_marks = 0, deaths = 0, death_marks = 0
"""


@asynccontextmanager
async def a_database(server_url: str) -> AsyncIterator[str]:
    """The URL of a new, empty database, which is gone afterwards."""
    url = await _create(server_url)
    try:
        yield url
    finally:
        await _drop(server_url, url)


@pytest.fixture(scope="module")
def own_database(postgresql_server: Server) -> Iterator[str]:
    """A database for the tests of one module, which is gone afterwards."""
    url = asyncio.run(_create(postgresql_server.url))
    yield url
    asyncio.run(_drop(postgresql_server.url, url))


@pytest.fixture(scope="module")
def told_database(postgresql_server: Server) -> Iterator[str]:
    """A database with all tables, that goes by a clock we can set."""
    url = asyncio.run(_create(postgresql_server.url))
    asyncio.run(_set_apart(url))
    yield url
    asyncio.run(_drop(postgresql_server.url, url))


class ToldTime:
    """Makes a database go by a fake clock."""

    def __init__(self, connection: asyncpg.Connection, clock: FakeClock) -> None:
        self._connection = connection
        self._clock = clock

    async def tell(self) -> None:
        """Have the server know what time it is."""
        await self._connection.execute(_TELL, self._clock.now())

    async def empty(self) -> None:
        """Leave nothing of what was there before."""
        tables = [name for (name,) in await self._connection.fetch(_TABLES)]
        emptying = [f"DELETE FROM deadletter.{name}" for name in tables]
        await self._connection.execute(";".join([*emptying, _RESET]))


@asynccontextmanager
async def told_time(url: str, clock: FakeClock) -> AsyncIterator[ToldTime]:
    """The told database, emptied, going by this clock."""
    connection = await asyncpg.connect(url)
    try:
        time = ToldTime(connection, clock)
        await time.empty()
        await time.tell()
        yield time
    finally:
        await connection.close()


def told_later(url: str, clock: FakeClock) -> Callable[[float], Awaitable[None]]:
    """Return a function that lets time pass, also for the server of a told database."""

    async def wait(seconds: float) -> None:
        clock.advance(seconds)
        connection = await asyncpg.connect(url)
        try:
            await ToldTime(connection, clock).tell()
        finally:
            await connection.close()

    return wait


def within(server_url: str, database: str, query: str = "") -> str:
    """The URL of a database of this server."""
    parts = urlsplit(server_url)
    return urlunsplit((parts.scheme, parts.netloc, f"/{database}", query, ""))


async def _create(server_url: str) -> str:
    name = f"dlq_{token_hex(6)}"
    await _as_admin(server_url, f"CREATE DATABASE {name}")
    return within(server_url, name)


async def _drop(server_url: str, url: str) -> None:
    name = urlsplit(url).path[1:]
    await _as_admin(server_url, f"DROP DATABASE {name} WITH (FORCE)")


async def _set_apart(url: str) -> None:
    await prepare(read_url(url))
    await _as_admin(url, _SET_APART)


async def _as_admin(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
