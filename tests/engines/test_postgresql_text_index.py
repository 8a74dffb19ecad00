"""Error texts in PostgreSQL are found by an index, and leave it when they must."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from deadletter.backends.postgresql.engine import open_database
from deadletter.backends.postgresql.letters import PostgresqlLetters
from deadletter.backends.postgresql.text_index import candidates
from deadletter.core.query.trigrams import trigrams
from deadletter.testing.fakes import FakeClock
from engines.postgresql_time import told_database, told_time
from office.making import BY, make_letter, make_letters

__all__ = ["told_database"]


@pytest.fixture
async def store(
    clock: FakeClock, told_database: str
) -> AsyncIterator[PostgresqlLetters]:
    async with told_time(told_database, clock):
        engine = await open_database(told_database, clock)
        assert isinstance(engine.letters, PostgresqlLetters)
        yield engine.letters
        await engine.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server(told_database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(told_database)
    yield connection
    await connection.close()


async def test_texts_are_indexed_changed_and_purged(
    store: PostgresqlLetters, server: asyncpg.Connection
) -> None:
    letter = make_letter(1, error_text="a rare zebra")
    await store.keep([letter, *make_letters(5)[1:]])
    assert await many(server, "zebra") == 5  # what is not indexed may have it

    await indexed(store)
    assert await many(server, "ZEBRA") == 1
    assert await many(server, "lion") == 0
    assert await many(server, "bank") is None  # more than asked for

    await server.execute(
        "UPDATE deadletter.letters SET error_text = 'lion' WHERE id = $1", letter.id
    )
    await indexed(store)
    assert await many(server, "zebra") == 0
    assert await many(server, "lion") == 1

    await store.purge([letter.id], BY)
    assert await many(server, "lion") == 0
    count = "SELECT count(*) FROM deadletter.letter_trigrams"
    assert await server.fetchval(count) == 4


async def indexed(store: PostgresqlLetters) -> None:
    while await store.index_texts():
        pass


async def many(server: asyncpg.Connection, word: str) -> int | None:
    async with server.transaction():
        most = 5 if word == "zebra" else 3
        found = await candidates(server, [trigrams(word)], most)
    return None if found is None else len(found)
