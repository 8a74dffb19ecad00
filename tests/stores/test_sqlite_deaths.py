"""Deaths over time in a SQLite file: one truth with the letters, whatever fails."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deadletter.core.grouping import GroupLimit
from deadletter.core.letter import By, GroupStatus, Standing, State
from deadletter.office.transactions.filing import file_letters
from deadletter.office.transactions.operations import run_now
from deadletter.ports import Engine, LetterStore, Move
from deadletter.stores.sqlite import deaths
from deadletter.stores.sqlite.letter_operations import SqliteOperations
from deadletter.testing.fakes import START, FakeClock, SeededDice
from deadletter.testing.letters_bench import ANNA, a_letter, tried_again
from deadletter.wiring.engines import open_engine
from downgrade import downgrade

_WRITES = [
    *("insert_letters", "rewrite_letters", "count_filed"),
    *("set_standing", "append_audit", "add_new_groups"),
]


class Crash(Exception):
    """The process ends here."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "office.db"


@pytest.fixture
async def engine(path: Path) -> Any:
    engine = await open_engine(f"sqlite:///{path}", clock=FakeClock(), dice=SeededDice(1))
    yield engine
    await engine.close()


@pytest.fixture
def connection(engine: Engine, path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def _numbers(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return deaths over time, deaths of groups, and deaths of the office."""
    rows = [
        connection.execute(f"SELECT coalesce(sum({name}), 0) FROM {table}").fetchone()[0]
        for name, table in (("n", "deaths"), ("total", "groups"), ("deaths", "office"))
    ]
    return rows[0], rows[1], rows[2]


@pytest.mark.parametrize("write", _WRITES)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_while_filing_leaves_deaths_and_letters_alike(
    engine: Engine,
    connection: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    write: str,
    when: str,
) -> None:
    assert engine.letters is not None
    old = a_letter(fingerprint="f-0")
    (kept,) = await engine.letters.keep([old])
    closed = Move(ids=(kept.id,), old=frozenset({State.PENDING}), new=State.CLOSED)
    await engine.letters.move(closed, ANNA)
    await engine.letters.set_group("f-0", Standing(status=GroupStatus.RESOLVED), By("anna"))
    real = getattr(SqliteOperations, write)
    seen = []

    async def crashing(self: SqliteOperations, *values: Any) -> Any:
        seen.append(write)
        if when == "after":
            await real(self, *values)
        raise Crash

    letters = [tried_again(old), *(a_letter(fingerprint=f"f-{n}") for n in range(1, 9))]
    with monkeypatch.context() as patch:
        patch.setattr(SqliteOperations, write, crashing)
        connection.execute("BEGIN IMMEDIATE")
        with suppress(Crash):
            run_now(file_letters(SqliteOperations(connection), letters, START, GroupLimit()))
        connection.execute("ROLLBACK")

    assert seen
    assert _numbers(connection) == (1, 1, 1)
    await engine.letters.keep(letters)
    assert _numbers(connection) == (10, 10, 10)
    assert not await engine.letters.verify()


async def test_a_crash_while_adding_up_loses_nothing(
    engine: Engine, connection: sqlite3.Connection
) -> None:
    assert engine.letters is not None
    await engine.letters.keep([a_letter(at=START + n * timedelta(minutes=3)) for n in range(100)])
    before = connection.execute("SELECT * FROM deaths").fetchall()

    connection.execute("BEGIN IMMEDIATE")
    assert deaths.tidy(connection, START + timedelta(days=3))
    connection.execute("ROLLBACK")

    assert connection.execute("SELECT * FROM deaths").fetchall() == before


async def test_a_file_of_an_earlier_version_counts_the_letters_it_has(path: Path) -> None:
    now = datetime.now(UTC)
    clock = FakeClock(now)
    url = f"sqlite:///{path}"
    engine = await open_engine(url, clock=clock, dice=SeededDice(1))
    store: LetterStore | None = engine.letters
    assert store is not None
    groups = [f"f-{n}" for n in range(60)]
    await store.keep([a_letter(fingerprint=name, version="1.8", at=now) for name in groups])
    await store.keep([a_letter(source="mails", at=now - timedelta(days=90))])
    await engine.close()
    with closing(sqlite3.connect(path)) as connection:
        downgrade(connection, 26)

    engine = await open_engine(url, clock=clock, dice=SeededDice(2))
    try:
        assert engine.letters is not None
        assert not await engine.letters.verify()
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT step, source, fingerprint, n FROM deaths").fetchall()
    finally:
        await engine.close()

    assert sum(n for *_, n in rows) == 61
    assert sum(1 for _, _, name, _ in rows if name) == 25
    assert (86_400, "mails", "f-1", 1) in rows
