"""Files that are not ours are left as they are; those that are, are opened."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.seals import PLAIN
from deadletter.stores.sqlite import SqliteEngine, open_engine
from deadletter.stores.sqlite import audit as marks
from deadletter.stores.sqlite import opening as schema
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_bench import a_message

NEWEST = schema.known()[-1][0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


async def opened(path: Path) -> SqliteEngine:
    return await open_engine(f"sqlite:///{path}", clock=FakeClock(), dice=SeededDice())


def made(path: Path, *statements: str) -> None:
    """A file that these statements have made."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema.add_functions(connection)
        marks.teach(connection, PLAIN)
        for statement in statements:
            connection.execute(statement).fetchall()


def made_by_us(path: Path, upto: int) -> None:
    """A file of ours as some version left it, but for the log."""
    scripts = [text for number, text in schema.known() if number <= upto]
    made(path, *(one for text in scripts for one in schema.statements(text)))
    made(path, f"PRAGMA user_version={upto}")


def all_files(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def users(path: Path) -> None:
    made(path, "CREATE TABLE users (a)", "INSERT INTO users VALUES (1)")


def users_in_wal_mode(path: Path) -> None:
    made(path, "PRAGMA journal_mode=WAL", "CREATE TABLE users (a)")


def a_view(path: Path) -> None:
    made(path, "CREATE VIEW users AS SELECT 1")


def a_table_of_our_name(path: Path) -> None:
    made(path, "CREATE TABLE messages (something_else)", "PRAGMA user_version=3")


def users_of_our_version(path: Path) -> None:
    made(path, "CREATE TABLE users (a)", f"PRAGMA user_version={NEWEST}")


def users_of_a_high_version(path: Path) -> None:
    made(path, "CREATE TABLE users (a)", "PRAGMA user_version=9999")


def a_number_alone(path: Path) -> None:
    made(path, "PRAGMA user_version=5")


def of_a_newer_version(path: Path) -> None:
    made_by_us(path, NEWEST)
    made(path, "PRAGMA user_version=9999")


def no_database(path: Path) -> None:
    path.write_bytes(b"To whom it may concern: " * 100)


@pytest.mark.parametrize(
    ("make", "saying"),
    [
        (users, "another program .it holds 'users'.*name a file that only"),
        (users_in_wal_mode, "another program .it holds 'users'"),
        (a_view, "another program .it holds 'users'"),
        (a_table_of_our_name, "another program .it holds 'messages'"),
        (users_of_our_version, "another program .it holds 'users'"),
        (users_of_a_high_version, "another program .it holds 'users'"),
        (a_number_alone, "another program .its user_version is 5"),
        (of_a_newer_version, r"newer deadletter \(schema 9999"),
        (no_database, "not a SQLite database"),
    ],
)
async def test_foreign_databases_are_rejected_unchanged(
    path: Path, make: Callable[[Path], None], saying: str
) -> None:
    make(path)
    before = all_files(path.parent)

    with pytest.raises(ConfigError, match=f"app.db.*{saying}"):
        await opened(path)

    assert all_files(path.parent) == before


def nothing_at_all(path: Path) -> None:
    path.touch()


def the_log_alone(path: Path) -> None:
    made(path, "PRAGMA journal_mode=WAL")
    assert path.stat().st_size > 0


def what_sqlite_keeps(path: Path) -> None:
    made(path, "CREATE TABLE a (b INTEGER PRIMARY KEY AUTOINCREMENT)", "DROP TABLE a")


@pytest.mark.parametrize("make", [nothing_at_all, the_log_alone, what_sqlite_keeps])
async def test_an_empty_file_is_made_ours(path: Path, make: Callable[[Path], None]) -> None:
    make(path)

    engine = await opened(path)
    await engine.broker.sink("orders").send([a_message()])
    await engine.close()

    assert set(all_files(path.parent)) == {"app.db"}


@pytest.mark.parametrize("upto", range(1, NEWEST + 1))
async def test_a_file_of_every_older_version_is_brought_up_to_date(path: Path, upto: int) -> None:
    made_by_us(path, upto)

    engine = await opened(path)
    await engine.broker.sink("orders").send([a_message()])
    found = await engine._db.read(schema.schema_version)
    await engine.close()

    assert found == NEWEST


async def test_tables_that_were_added_to_ours_are_nobodys_concern(path: Path) -> None:
    await (await opened(path)).close()
    made(path, "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")

    engine = await opened(path)
    await engine.close()


def replaced_with_users(path: Path) -> None:
    other = path.with_name("other.db")
    users(other)
    other.replace(path)


async def test_a_file_put_in_place_of_ours_is_left_as_it_is(path: Path, tmp_path: Path) -> None:
    engine = await opened(path)
    await engine.broker.sink("orders").send([a_message()])
    replaced_with_users(path)
    theirs = all_files(tmp_path)["app.db"]

    for _ in range(3):
        with pytest.raises(Unavailable):
            await engine.broker.sink("orders").send([a_message()])
        with pytest.raises(Unavailable):
            await engine.broker.queues()
    await engine.close()

    assert all_files(tmp_path)["app.db"] == theirs


def linked(path: Path, target: Path) -> None:
    path.symlink_to(target)


async def test_a_link_to_a_file_that_is_not_there_yet_is_followed(
    path: Path, tmp_path: Path
) -> None:
    linked(path, tmp_path / "elsewhere.db")

    await (await opened(path)).close()

    assert all_files(tmp_path).keys() == {"app.db", "elsewhere.db"}


async def test_opening_a_file_twice_lets_go_of_no_locks(path: Path) -> None:
    first = await opened(path)
    await first.broker.sink("orders").send([a_message()])
    await (await opened(path)).close()

    # One that believed to be the last would take the log away.
    looked_at_by_another_process(path)
    await first.broker.sink("orders").send([a_message()])

    assert looked_at_by_another_process(path) == 2
    await first.close()


def looked_at_by_another_process(path: Path) -> int:
    """How many messages it sees."""
    look = f"""
import sqlite3
connection = sqlite3.connect({str(path)!r})
print(*connection.execute("SELECT count(*) FROM messages").fetchone())
connection.close()
"""
    command = [sys.executable, "-c", look]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
