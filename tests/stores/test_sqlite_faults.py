"""Faults: said in words, never pretended away, and survived."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deadletter.core.errors import Unavailable
from deadletter.ports import Acked, Engine
from deadletter.stores.sqlite import connection as connecting
from deadletter.stores.sqlite import open_engine
from deadletter.stores.sqlite.engine import Database
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_bench import a_message, info


async def opened(url: str) -> Engine:
    return await open_engine(url, clock=FakeClock(), dice=SeededDice())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
async def db(path: Path) -> AsyncIterator[Database]:
    database = await Database(path, clock=FakeClock()).open()
    yield database
    await database.close()


@pytest.fixture
async def engine(path: Path) -> AsyncIterator[Engine]:
    engine = await opened(f"sqlite:///{path}")
    yield engine
    await engine.close()


def named(name: str) -> Callable[[sqlite3.Connection], int]:
    """Work that adds a mailbox of this name."""
    sql = "INSERT INTO mailboxes (name) VALUES (?)"
    return lambda connection: connection.execute(sql, (name,)).rowcount


async def names(db: Database) -> list[str]:
    sql = "SELECT name FROM mailboxes ORDER BY name"
    return [name for (name,) in await db.read(lambda c: c.execute(sql).fetchall())]


def move(path: Path, to: Path) -> None:
    path.rename(to)


async def test_a_short_lock_by_another_process_is_waited_for(db: Database, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(db.write(named("a")))
    await asyncio.sleep(0.05)
    assert not writing.done()

    other.execute("COMMIT")
    other.close()

    assert await asyncio.wait_for(writing, 5.0) == 1


async def test_a_lease_begins_when_it_is_written_not_when_it_was_asked_for(path: Path) -> None:
    clock = FakeClock()
    engine = await open_engine(f"sqlite:///{path}", clock=clock, dice=SeededDice())
    await engine.broker.sink("orders").send([a_message()])
    source = engine.broker.source("orders")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    receiving = asyncio.create_task(source.receive(limit=1, wait=0, lease=10.0))
    await asyncio.sleep(0.02)

    clock.advance(60.0)  # all this time the other one keeps us waiting
    other.execute("COMMIT")
    other.close()
    (delivery,) = await receiving

    assert await source.settle([Acked(delivery)]) == [True]
    await engine.close()


async def test_a_lock_that_never_ends_is_an_error_in_words(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "PATIENCE", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(Unavailable, match="database is busy"):
        await db.write(named("a"))

    other.execute("COMMIT")
    other.close()
    assert await db.write(named("a")) == 1


async def test_a_full_disk_is_said_and_survived(engine: Engine, path: Path) -> None:
    sink = engine.broker.sink("orders")
    await sink.send([a_message()])
    full = "PRAGMA max_page_count=1"  # of this connection; the next has none
    await engine._db.write(lambda c: c.execute(full).fetchone())  # type: ignore[attr-defined]

    big = [a_message(b"x" * 100_000)]
    with pytest.raises(Unavailable, match="disk is full: free some space"):
        await sink.send(big)
    await sink.send(big)

    counts = await info(engine.broker)
    assert (counts.ready, counts.tally["sent"]) == (2, 2)


async def test_everybody_in_a_group_hears_of_the_failure(db: Database) -> None:
    await db.write(lambda c: c.execute("PRAGMA max_page_count=1").fetchone())
    big = "INSERT INTO mailboxes (name) VALUES (zeroblob(100000))"

    answers = await asyncio.gather(
        *(db.write(named(str(i))) for i in range(3)),
        db.write(lambda c: c.execute(big)),
        *(db.write(named(str(i + 3))) for i in range(3)),
        return_exceptions=True,
    )

    # Whoever was told yes is there; nobody else is.
    told = [str(i) for i in range(3) if answers[i] == 1]
    told += [str(i - 1) for i in range(4, 7) if answers[i] == 1]
    assert isinstance(answers[3], Unavailable)
    assert await names(db) == told


async def test_a_removed_file_is_noticed_and_its_return_too(engine: Engine, path: Path) -> None:
    sink = engine.broker.sink("orders")
    await sink.send([a_message()])
    move(path, path.with_suffix(".away"))

    with pytest.raises(Unavailable, match="removed or moved"):
        await sink.send([a_message()])
    with pytest.raises(Unavailable):
        await sink.send([a_message()])

    move(path.with_suffix(".away"), path)
    await sink.send([a_message()])
    assert (await info(engine.broker)).ready == 2


async def test_a_file_migrated_under_us_is_not_written(engine: Engine, path: Path) -> None:
    await engine.broker.sink("orders").send([a_message()])
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version=9999")
    other.close()

    with pytest.raises(Unavailable, match="restart this process"):
        await engine.broker.sink("orders").send([a_message()])
