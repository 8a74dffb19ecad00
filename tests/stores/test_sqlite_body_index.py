"""Bodies in SQLite are found by an index where wanted, and leave it when they must."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from msgspec.structs import replace

from deadletter.core.grouping import GroupLimit
from deadletter.core.letter import DeadLetter, Edit
from deadletter.core.query import Meter, parse
from deadletter.core.seals import PLAIN
from deadletter.office.transactions.letters import edit, purge
from deadletter.office.transactions.operations import run_now
from deadletter.ports.letters import Page
from deadletter.stores.sqlite import body_index, text_index
from deadletter.stores.sqlite.audit import teach
from deadletter.stores.sqlite.body_index import index_up_to
from deadletter.stores.sqlite.letter_operations import SqliteOperations
from deadletter.stores.sqlite.opening import migrate
from deadletter.stores.sqlite.search import find
from office.making import BY, NOW, make_letter, make_letters
from stores.sqlite_filing import keep

_INTEGRITY = "INSERT INTO letter_bodies (letter_bodies) VALUES ('integrity-check')"


@pytest.fixture
def office() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        teach(connection, PLAIN)
        migrate(connection)
        yield connection


def index(office: sqlite3.Connection) -> None:
    while text_index.index_some(office) or body_index.index_some(office):
        pass


def searched(office: sqlite3.Connection, query: str) -> Page:
    meter = Meter(time.monotonic)
    return find(office, parse(query), limit=10, after=None, now=NOW, meter=meter)


def ids(page: Page) -> list[str]:
    return [head.id for head in page.heads]


def with_zebra(body: bytes = b'{"animal": "a Zebra"}') -> list[DeadLetter]:
    return [*make_letters(30), make_letter(99, body=body)]


def test_words_in_bodies_are_found_without_reading_the_others(office: sqlite3.Connection) -> None:
    letters = with_zebra()
    keep(office, letters, NOW, GroupLimit())
    assert searched(office, "zebra").looked_at == 31

    index_up_to(office, 1_000)
    index(office)

    page = searched(office, "zebra OR lion")
    assert ids(page) == [letters[-1].id]
    assert page.looked_at == 1


def test_larger_bodies_are_looked_at_themselves(office: sqlite3.Connection) -> None:
    letters = with_zebra(b"~" * 2_000 + b" zebra")
    index_up_to(office, 1_000)
    keep(office, letters, NOW, GroupLimit())
    index(office)

    assert ids(searched(office, "zebra")) == [letters[-1].id]
    assert searched(office, "lion").looked_at == 1
    assert holds(office, b"zeb") is False


def test_bodies_that_are_not_text_are_found(office: sqlite3.Connection) -> None:
    letters = with_zebra(b"\xff\0\xe2\x82zebra\x82\0a stripe\0")
    index_up_to(office, 1_000)
    keep(office, letters, NOW, GroupLimit())
    index(office)

    for word in ("zebra", "stripe"):
        page = searched(office, word)
        assert (ids(page), page.looked_at) == ([letters[-1].id], 1)


def test_letters_that_are_not_indexed_yet_are_looked_at(office: sqlite3.Connection) -> None:
    letters = with_zebra()
    index_up_to(office, 1_000)
    keep(office, letters[:-1], NOW, GroupLimit())
    index(office)
    keep(office, letters[-1:], NOW, GroupLimit())

    page = searched(office, "zebra")

    assert (ids(page), page.looked_at) == ([letters[-1].id], 1)


def test_an_edited_body_is_found_as_it_is_now(office: sqlite3.Connection) -> None:
    letters = with_zebra()
    index_up_to(office, 1_000)
    (*_, zebra) = keep(office, letters, NOW, GroupLimit())
    index(office)

    other = replace(letters[-1].message, body=b"a lion")
    run_now(edit(SqliteOperations(office), Edit(zebra.id, other, 0, BY), NOW))
    assert ids(searched(office, "lion")) == [zebra.id]
    assert searched(office, "zebra").looked_at == 1  # not indexed again yet
    index(office)

    assert (searched(office, "zebra").looked_at, holds(office, b"zeb")) == (0, True)
    while body_index.tidy_some(office):
        pass
    assert not holds(office, b"zeb")
    assert searched(office, "lion").looked_at == 1
    office.execute(_INTEGRITY)


def test_a_purged_body_leaves_nothing_in_the_index(office: sqlite3.Connection) -> None:
    letters = with_zebra()
    index_up_to(office, 1_000)
    keep(office, letters, NOW, GroupLimit())
    index(office)
    assert holds(office, b"zeb")

    run_now(purge(SqliteOperations(office), [letters[-1].id], BY, NOW))
    while body_index.tidy_some(office):
        pass

    assert not holds(office, b"zeb")
    assert office.execute("SELECT count(*) FROM letter_bodies").fetchone() == (30,)
    assert not body_index.has_more(office)
    office.execute(_INTEGRITY)


def test_another_size_begins_the_index_anew(office: sqlite3.Connection) -> None:
    letters = with_zebra(b"~" * 2_000 + b" zebra")
    index_up_to(office, 1_000)
    keep(office, letters, NOW, GroupLimit())
    index(office)

    index_up_to(office, 5_000)
    assert body_index.has_more(office)
    index(office)
    assert holds(office, b"zeb")
    assert searched(office, "lion").looked_at == 0

    index_up_to(office, 0)
    tables = "SELECT name FROM sqlite_master WHERE name LIKE 'letter_bod%'"
    assert office.execute(tables).fetchall() == []
    assert not body_index.has_more(office)
    assert ids(searched(office, "zebra")) == [letters[-1].id]


def holds(office: sqlite3.Connection, gram: bytes) -> bool:
    blocks = office.execute("SELECT block FROM letter_bodies_data").fetchall()
    return any(gram in block for (block,) in blocks)
