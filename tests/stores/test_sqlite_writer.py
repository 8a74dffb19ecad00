"""Where transactions run: on the event loop when they are brief, else on the thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from deadletter.core.errors import Unavailable
from deadletter.stores.sqlite import writer as writing
from deadletter.stores.sqlite.engine import Database
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from stores.sqlite_table import db, rows, where

__all__ = ["db"]


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast the disk is here: commits are left to the thread."""
    monkeypatch.setattr(writing, "_QUICK", 0.0)


async def test_brief_work_runs_on_the_event_loop_and_the_rest_on_the_thread(db: Database) -> None:
    here = threading.current_thread().name

    assert await db.write(where, brief=True) == here
    assert await db.write(where) == "deadletter-writer"
    assert await rows(db) == 2


async def test_a_group_with_one_long_job_runs_on_the_thread(db: Database) -> None:
    first = db.submit(where, brief=True)
    await asyncio.sleep(0)  # under way: the others wait for its commit
    both = [db.submit(where, brief=True), db.submit(where)]

    assert await first == threading.current_thread().name
    assert await asyncio.gather(*both) == ["deadletter-writer"] * 2


async def test_waiting_writes_become_one_transaction_on_the_loop(db: Database) -> None:
    jobs = [db.submit(where, brief=True) for _ in range(5)]

    assert await asyncio.gather(*jobs) == [threading.current_thread().name] * 5


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each commit was for."""
    found: list[int] = []
    finish = writing.Writer._finish

    def counted(writer: writing.Writer, group: writing.Group) -> None:
        found.append(len(group.jobs))
        finish(writer, group)

    monkeypatch.setattr(writing.Writer, "_finish", counted)
    return found


async def test_patient_writes_share_a_commit_with_slightly_later_ones(
    db: Database, groups: list[int]
) -> None:
    patient = db.submit(where, brief=True, patient=True)
    await asyncio.sleep(0)
    await asyncio.gather(patient, db.submit(where, brief=True))

    assert groups == [2]


async def test_a_patient_write_is_committed_alone_if_no_other_comes(
    db: Database, groups: list[int]
) -> None:
    assert await db.write(where, brief=True, patient=True)
    assert await db.write(where, patient=True) == "deadletter-writer"

    assert groups == [1, 1]


async def test_follow_up_writes_share_the_commit_of_waiting_ones(
    db: Database, groups: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, may_go_on = writing.Writer._finish, threading.Event()

    def held_up(writer: writing.Writer, group: writing.Group) -> None:
        counted(writer, group)
        assert may_go_on.wait(10.0)

    async def twice() -> None:
        await db.write(where, brief=True)
        await db.write(where, brief=True)

    monkeypatch.setattr(writing.Writer, "_finish", held_up)
    first = asyncio.create_task(twice())
    await eventually(lambda: groups == [1])  # under way
    other = db.submit(where, brief=True)
    may_go_on.set()
    await asyncio.gather(first, other)

    assert groups == [1, 2]


async def test_simultaneous_writes_share_a_commit(db: Database, groups: list[int]) -> None:
    await asyncio.gather(*(db.write(where, brief=True) for _ in range(5)))

    assert groups == [5]


async def test_while_another_process_writes_the_loop_does_not_wait(db: Database) -> None:
    other = sqlite3.connect(db.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    job = db.submit(where, brief=True)  # returns at once: that is the point
    turns = 0
    while turns < 50:
        await asyncio.sleep(0.001)
        turns += 1
    assert not job.done()
    other.execute("ROLLBACK")
    other.close()

    assert await job == "deadletter-writer"


async def test_after_a_slow_answer_nothing_runs_on_the_loop_for_a_while(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_LONG", 0.0)

    assert await db.write(where, brief=True) == threading.current_thread().name
    assert await db.write(where, brief=True) == "deadletter-writer"


async def test_a_job_that_raises_on_the_loop_is_undone_alone(db: Database) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES (2)")
        raise ValueError("no")

    jobs = [db.submit(work, brief=True) for work in (where, fails, where)]
    results = await asyncio.gather(*jobs, return_exceptions=True)

    assert isinstance(results[1], ValueError)
    assert await rows(db) == 2


async def test_an_error_of_the_file_is_told_to_all_of_the_group(db: Database) -> None:
    db.path.rename(db.path.with_suffix(".away"))
    jobs = [db.submit(where, brief=True) for _ in range(3)]
    try:
        results = await asyncio.gather(*jobs, return_exceptions=True)
    finally:
        db.path.with_suffix(".away").rename(db.path)

    assert all(isinstance(result, Unavailable) for result in results)
    assert await db.write(where, brief=True)  # and it goes on


async def test_an_event_loop_that_does_not_come_around_is_not_waited_for(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_LATE", 0.05)
    taken = threading.Event()

    def told(connection: sqlite3.Connection) -> str:
        taken.set()
        return where(connection)

    first = db.submit(where, brief=True)
    await asyncio.sleep(0)
    second = db.submit(told, brief=True)
    assert taken.wait(10.0)  # like a handler that holds the loop

    assert await first == threading.current_thread().name
    assert await second == "deadletter-writer"
    assert await rows(db) == 2


async def test_a_loop_that_is_gone_leaves_its_jobs_to_the_thread(db: Database) -> None:
    def elsewhere() -> None:
        async def leave() -> None:
            for _ in range(3):
                db.submit(where, brief=True)

        asyncio.run(leave())

    await asyncio.to_thread(elsewhere)

    async def all_there() -> bool:
        return await rows(db) == 3

    await eventually(all_there)
    assert await db.write(where, brief=True)


async def test_closing_finishes_what_was_submitted(tmp_path: Path) -> None:
    database = await Database(tmp_path / "y.db", clock=SystemClock()).open()
    await database.write(lambda c: c.execute("CREATE TABLE t (n INTEGER)"))
    jobs = [database.submit(where, brief=number % 2 == 0) for number in range(20)]
    closing = asyncio.create_task(database.close())

    assert len(await asyncio.gather(*jobs)) == 20
    await closing
    with pytest.raises(Unavailable):
        await database.write(where)


async def test_closing_serves_who_was_patient_on_a_loop_that_is_gone(tmp_path: Path) -> None:
    database = await Database(tmp_path / "y.db", clock=SystemClock()).open()
    await database.write(lambda c: c.execute("CREATE TABLE t (n INTEGER)"))
    served = threading.Event()

    def ask() -> None:
        database.submit(lambda c: served.set(), brief=True, patient=True)

    await asyncio.to_thread(abandoned, ask)
    async with asyncio.timeout(10):
        await database.close()
    assert served.is_set()


async def test_a_loop_that_is_gone_holds_up_nobody_by_its_patience(db: Database) -> None:
    def ask() -> None:
        db.submit(where, brief=True, patient=True)

    await asyncio.to_thread(abandoned, ask)
    async with asyncio.timeout(10):
        await db.write(where, brief=True)
    assert await rows(db) == 2


def abandoned(ask: Callable[[], object]) -> None:
    """Ask on an event loop that takes no further turn."""
    loop = asyncio.new_event_loop()
    loop.call_soon(ask)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()


async def test_an_interrupt_on_the_loop_is_not_swallowed(db: Database) -> None:
    def interrupted(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")  # so that nothing can be saved
        raise KeyboardInterrupt

    def ask() -> None:
        asyncio.run(db.write(interrupted, brief=True))

    with pytest.raises(KeyboardInterrupt):
        await asyncio.to_thread(ask)
    assert await db.write(where, brief=True)
    assert await rows(db) == 1
