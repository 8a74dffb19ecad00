"""Error texts in SQLite are found by an index, and leave it when they must."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from deadletter.core.errors import ConfigError
from deadletter.core.grouping import GroupLimit
from deadletter.core.letter import DeadLetter
from deadletter.core.query import parse
from deadletter.core.query.filters import trigrams
from deadletter.core.seals import PLAIN
from deadletter.office.transactions.letters import purge
from deadletter.office.transactions.operations import run_now
from deadletter.stores.sqlite import search as search_window
from deadletter.stores.sqlite import text_index
from deadletter.stores.sqlite.audit import teach
from deadletter.stores.sqlite.letter_operations import SqliteOperations
from deadletter.stores.sqlite.opening import migrate
from deadletter.stores.sqlite.text_index import index_some, tidy_some
from office.making import BY, NOW, make_letter, make_letters
from stores.sqlite_filing import keep

_MATCHING = "SELECT rowid FROM letter_texts WHERE letter_texts MATCH ? ORDER BY rowid"
_INTEGRITY = "INSERT INTO letter_texts (letter_texts) VALUES ('integrity-check')"


@pytest.fixture
def office() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        teach(connection, PLAIN)
        migrate(connection)
        yield connection


def indexed(office: sqlite3.Connection, *letters: DeadLetter) -> None:
    keep(office, letters, NOW, GroupLimit())
    while index_some(office):
        pass


def matching(office: sqlite3.Connection, word: str) -> list[int]:
    match = " AND ".join(f'"{gram}"' for gram in trigrams(word))
    return [seq for (seq,) in office.execute(_MATCHING, (match,))]


def test_letters_are_indexed_after_they_are_kept(office: sqlite3.Connection) -> None:
    keep(office, make_letters(3, error_text="connection refused"), NOW, GroupLimit())
    assert matching(office, "refused") == []

    assert index_some(office) == 3
    assert index_some(office) == 0

    assert matching(office, "refused") == [1, 2, 3]
    assert matching(office, "EFUSE".lower()) == [1, 2, 3]
    assert matching(office, "answered") == []


def test_long_texts_are_indexed_few_at_a_time(
    office: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_index, "MOST_TEXT", 1_000)
    keep(office, make_letters(5, error_text="x" * 400), NOW, GroupLimit())

    assert [index_some(office) for _ in range(4)] == [2, 2, 1, 0]


def test_a_text_that_changes_is_found_as_it_is_now(office: sqlite3.Connection) -> None:
    indexed(office, make_letter(1, error_text="the first thing broke"))

    office.execute("UPDATE letters SET error_text = 'another thing broke'")
    assert matching(office, "first") == []
    while index_some(office):
        pass

    assert matching(office, "another") == [1]
    assert office.execute("SELECT count(*) FROM letters_unindexed").fetchone() == (0,)
    office.execute(_INTEGRITY)


def test_a_purged_text_leaves_nothing_in_the_index(office: sqlite3.Connection) -> None:
    letters = [make_letter(1, error_text="zebra"), *make_letters(4)[1:]]
    indexed(office, *letters)
    assert holds(office, b"zeb")

    run_now(purge(SqliteOperations(office), [letters[0].id], BY, NOW))
    assert matching(office, "zebra") == []
    while tidy_some(office):
        pass

    assert not holds(office, b"zeb")
    assert office.execute("SELECT removed FROM text_index").fetchone() == (0,)
    office.execute(_INTEGRITY)


def test_odd_text_is_left_to_be_looked_at(office: sqlite3.Connection) -> None:
    letters = [make_letter(1, error_text="a\0 bad one"), make_letter(2)]
    indexed(office, *letters)
    assert office.execute("SELECT letter FROM letters_unindexed").fetchall() == [(1,)]

    run_now(purge(SqliteOperations(office), [letters[0].id], BY, NOW))

    assert office.execute("SELECT letter FROM letters_unindexed").fetchall() == []
    office.execute(_INTEGRITY)


def test_a_rare_text_leads_a_search(office: sqlite3.Connection) -> None:
    indexed(office, *make_letters(30), make_letter(99, error_text="a rare zebra"))
    keep(office, [make_letter(100)], NOW, GroupLimit())  # not indexed yet, so it may be one

    found = search_window.text_window(office, parse("text:[ZEBRA,lion]"))

    assert found is not None
    assert search_window.size(office, found, start=None, most=100) == 2
    either = search_window.text_window(office, parse("text:zebra OR text:lion"))
    assert either == found


def test_a_text_that_many_have_does_not(
    office: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_window, "MOST_SORTED", 20)
    indexed(office, *make_letters(30))

    assert search_window.text_window(office, parse("text:bank")) is None
    assert search_window.text_window(office, parse('text:"no such"')) is not None


def test_a_sqlite_without_fts5_refuses_an_indexed_file(
    office: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.stores.sqlite.text_index.is_possible", bool)

    with pytest.raises(ConfigError, match="FTS5"):
        migrate(office)


def test_without_fts5_texts_are_still_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletter.stores.sqlite.text_index.is_possible", bool)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as office:
        teach(office, PLAIN)
        migrate(office)
        indexed(office, make_letter(1, error_text="zebra"))

        assert search_window.text_window(office, parse("text:zebra")) is None


def holds(office: sqlite3.Connection, gram: bytes) -> bool:
    blocks = office.execute("SELECT block FROM letter_texts_data").fetchall()
    return any(gram in block for (block,) in blocks)
