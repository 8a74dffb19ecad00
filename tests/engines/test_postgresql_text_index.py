"""Error texts in PostgreSQL are found by an index, and leave it when they must."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from msgspec.structs import replace

from deadletter.core.query import parse
from deadletter.core.query.filters import Hint, trigrams
from deadletter.stores.postgresql import body_index
from deadletter.stores.postgresql.engine import open_database
from deadletter.stores.postgresql.letters import PostgresqlLetters
from deadletter.stores.postgresql.text_index import candidates
from deadletter.testing.fakes import FakeClock
from engines.postgresql_time import told_database, told_time
from office.making import BY, make_letter, make_letters

__all__ = ["told_database"]


@pytest.fixture
async def store(clock: FakeClock, told_database: str) -> AsyncIterator[PostgresqlLetters]:
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


async def test_words_in_bodies_are_found_without_reading_the_others(
    store: PostgresqlLetters,
) -> None:
    letters = [*make_letters(30), make_letter(99, body=b'{"animal": "a Zebra"}')]
    await store.keep(letters)
    assert (await store.find(parse("zebra"))).looked_at == 31

    await store.index_bodies(1_000)
    await indexed(store)
    assert await searched(store, "zebra OR lion") == ([letters[-1].id], 1)

    other = replace(letters[-1].message, body=b"~" * 2_000 + b"a lion")
    await store.edit(letters[-1].id, other, revision=0, by=BY)
    await indexed(store)  # but it is too large now
    assert await searched(store, "zebra") == ([], 1)
    assert await searched(store, "lion") == ([letters[-1].id], 1)

    await store.index_bodies(5_000)
    await indexed(store)
    assert await searched(store, "zebra") == ([], 0)
    assert await searched(store, "lion") == ([letters[-1].id], 1)


async def test_an_index_of_bodies_that_nobody_wants_is_emptied(
    store: PostgresqlLetters, server: asyncpg.Connection
) -> None:
    there = "SELECT count(*) FROM deadletter.letter_trigrams WHERE body IS NOT NULL"
    await store.keep(make_letters(3))
    await store.index_bodies(1_000)
    await indexed(store)
    assert await server.fetchval(there) == 3

    await store.index_bodies(0)
    assert (await store.find(parse("zebra"))).looked_at == 3
    await indexed(store)

    assert await server.fetchval(there) == 0


async def test_two_who_index_bodies_do_it_once(
    store: PostgresqlLetters, server: asyncpg.Connection
) -> None:
    await store.keep(make_letters(3))
    await indexed(store)
    await store.index_bodies(1_000)
    async with server.transaction():
        assert await body_index.index_some(server) == 3
        assert await store.index_texts() is False  # the other does it


async def searched(store: PostgresqlLetters, query: str) -> tuple[list[str], int]:
    page = await store.find(parse(query))
    return [head.id for head in page.heads], page.looked_at


async def indexed(store: PostgresqlLetters) -> None:
    while await store.index_texts():
        pass


async def many(server: asyncpg.Connection, word: str) -> int | None:
    async with server.transaction():
        most = 5 if word == "zebra" else 3
        found = await candidates(server, [Hint(tuple(trigrams(word)))], most)
    return None if found is None else len(found)
