"""Reads of many rows by name: few different statements, and nothing missing."""

import sqlite3
from collections.abc import Iterator

import pytest

from deadletter.stores.sqlite.sql import in_chunks

ALL = 300
SELECT = "SELECT * FROM t WHERE (a, b) IN"


class CountingConnection(sqlite3.Connection):
    """A connection that remembers the texts of its statements."""

    texts: frozenset[str] = frozenset()

    def execute(self, sql: str, /, *args: object) -> sqlite3.Cursor:
        """Run a statement."""
        self.texts |= {sql}
        return super().execute(sql, *args)


@pytest.fixture
def connection() -> Iterator[CountingConnection]:
    found = sqlite3.connect(":memory:", factory=CountingConnection)
    assert isinstance(found, CountingConnection)
    found.execute("CREATE TABLE t (a TEXT, b TEXT)")
    found.executemany("INSERT INTO t VALUES (?, ?)", [(f"a{n}", f"b{n}") for n in range(ALL)])
    yield found
    found.close()


def test_batches_of_every_size_share_a_few_statements(connection: CountingConnection) -> None:
    # SQLite prepares each new text, which takes longer than a small read.
    connection.texts = frozenset()
    for size in range(1, 129):
        in_chunks(connection, "a", SELECT, [(f"a{n}", f"b{n}") for n in range(size)])
    assert len(connection.texts) <= 8


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 64, 65, ALL])
def test_every_row_is_read_once(connection: CountingConnection, size: int) -> None:
    wanted = [(f"a{n}", f"b{n}") for n in range(size)]
    found = in_chunks(connection, "a, b", SELECT, wanted)
    assert sorted(tuple(row) for row in found) == sorted(wanted)
