"""The file in use: written in groups, in few steps, by many at once."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deadletter.core.errors import BackendError, Refused, Unavailable
from deadletter.ports import Acked, Engine, Released
from deadletter.stores.sqlite import open_engine, waking
from deadletter.stores.sqlite.engine import Database
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_bench import LEASE, a_message


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


# Writing in groups


async def test_a_job_that_fails_does_not_spoil_its_neighbours(db: Database) -> None:
    def failing(connection: sqlite3.Connection) -> None:
        named("undone")(connection)
        raise ValueError("mine alone")

    answers = await asyncio.gather(
        *(db.write(work) for work in (named("a"), failing, named("b"))), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [int, ValueError, int]
    assert await names(db) == ["a", "b"]


async def test_a_job_alone_that_fails_is_undone(db: Database) -> None:
    await db.write(named("a"))

    with pytest.raises(Refused, match="UNIQUE"):
        await db.write(lambda c: (named("b")(c), named("a")(c)))

    assert await names(db) == ["a"]


async def test_concurrent_writes_share_a_commit(db: Database) -> None:
    commits: list[str] = []

    def trace(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)

    await db.write(trace)
    commits.clear()
    await asyncio.gather(*(db.write(named(str(i))) for i in range(200)))

    assert len(await names(db)) == 200
    assert len(commits) < 20


async def test_a_write_runs_to_its_end_when_its_asker_is_gone(db: Database) -> None:
    asking = asyncio.create_task(db.write(named("a")))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    await db.write(named("b"))

    assert await names(db) == ["a", "b"]


async def test_closing_finishes_what_was_asked(path: Path) -> None:
    db = await Database(path, clock=FakeClock()).open()
    asked = [asyncio.create_task(db.write(named(str(i)))) for i in range(50)]
    await asyncio.sleep(0)

    await db.close()
    await db.close()

    assert [await task for task in asked] == [1] * 50
    with pytest.raises(Unavailable, match="closed"):
        await db.write(named("late"))
    with pytest.raises(Unavailable, match="closed"):
        await db.read(lambda c: None)


async def test_several_event_loops_share_a_file(db: Database) -> None:
    def write_some(who: int) -> None:
        async def main() -> None:
            await asyncio.gather(*(db.write(named(f"{who}-{i}")) for i in range(20)))

        asyncio.run(main())

    threads = [threading.Thread(target=write_some, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)

    assert len(await names(db)) == 80


async def test_reading_sees_one_moment_and_cannot_write(db: Database) -> None:
    with pytest.raises(BackendError, match="readonly"):
        await db.read(named("a"))

    assert await names(db) == []


def test_a_forked_child_is_told_to_open_its_own(path: Path) -> None:
    script = f"""
import asyncio, os
from deadletter.stores.sqlite.engine import Database
from deadletter.core.errors import ConfigError
from deadletter.testing.fakes import FakeClock

async def ask(db):
    try:
        await db.write(lambda c: None)
    except ConfigError as error:
        print(error, flush=True)

db = asyncio.run(Database({str(path)!r}, clock=FakeClock()).open())
if os.fork() == 0:
    asyncio.run(ask(db))
    os._exit(0)
os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert "open it again there, after the fork" in done.stdout


# Few steps: each one lets go of the interpreter and may wait to get it back


@pytest.mark.parametrize(
    ("verb", "most"), [("send", 6), ("receive", 5), ("ack", 6), ("release", 5)]
)
async def test_a_batch_is_a_handful_of_statements(path: Path, verb: str, most: int) -> None:
    engine = await open_engine(f"sqlite:///{path}", clock=FakeClock(), dice=SeededDice())
    sink, source = engine.broker.sink("orders"), engine.broker.source("orders")
    await sink.send([a_message() for _ in range(200)])
    taken = await source.receive(limit=100, wait=0, lease=LEASE)
    statements: list[str] = []
    await engine._db.write(lambda c: c.set_trace_callback(statements.append))
    statements.clear()

    match verb:
        case "send":
            await sink.send([a_message() for _ in range(100)])
        case "receive":
            await source.receive(limit=100, wait=0, lease=LEASE)
        case "ack":
            await source.settle([Acked(delivery) for delivery in taken])
        case _:
            await source.settle([Released(delivery) for delivery in taken])
    await engine.close()

    assert 0 < len(statements) <= most, statements


# Waking


async def test_a_send_rings_without_waiting_for_the_next_look(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "_TICK", 60.0)
    source = engine.broker.source("orders")
    waiting = asyncio.create_task(source.receive(limit=1, wait=30.0, lease=LEASE))
    await asyncio.sleep(0.05)

    await engine.broker.sink("orders").send([a_message()])

    assert len(await asyncio.wait_for(waiting, 5.0)) == 1


async def test_messages_of_another_process_are_noticed(engine: Engine, path: Path) -> None:
    other = await opened(f"sqlite:///{path}")  # knows nothing of the first
    source = engine.broker.source("orders")
    waiting = asyncio.create_task(source.receive(limit=1, wait=30.0, lease=LEASE))
    await asyncio.sleep(0.05)

    await other.broker.sink("orders").send([a_message()])
    delivered = await asyncio.wait_for(waiting, 5.0)
    await other.close()

    assert len(delivered) == 1
