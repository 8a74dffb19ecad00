"""On a quick disk one who is alone commits where it runs; everybody else as ever."""

import asyncio
import threading
from pathlib import Path

import pytest

from deadletter.core.errors import Unavailable
from deadletter.stores.sqlite import writer as writing
from deadletter.stores.sqlite.connection import Link
from deadletter.stores.sqlite.engine import Database
from deadletter.system import SystemClock
from stores.sqlite_table import db, rows, where

__all__ = ["db"]


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the disk is here: commits are not worth a thread's turn."""
    monkeypatch.setattr(writing, "_QUICK", 1e9)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """On which thread each commit was made, and after how many pages it copies."""
    found: list[tuple[str, int]] = []
    finish = writing.Writer._finish

    def seen(writer: writing.Writer, group: writing.Group) -> None:
        asked = writer._link.get().execute("PRAGMA wal_autocheckpoint")
        found.append((threading.current_thread().name, asked.fetchone()[0]))
        finish(writer, group)

    monkeypatch.setattr(writing.Writer, "_finish", seen)
    return found


THREAD = ("deadletter-writer", 2000)


async def test_on_a_quick_disk_one_alone_is_committed_where_it_runs(
    db: Database, commits: list[tuple[str, int]]
) -> None:
    here = (threading.current_thread().name, 0)  # and never copies the log there

    for _ in range(3):
        await db.write(where, brief=True)
    await asyncio.gather(*(db.write(where, brief=True) for _ in range(2)))
    await db.write(where)
    await db.write(where, brief=True, patient=True)

    assert commits == [here, here, here, THREAD, THREAD, here]
    assert await rows(db) == 7


async def test_now_and_then_the_thread_commits_and_copies_the_log(
    db: Database, commits: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_COPIED", 2)
    here = (threading.current_thread().name, 0)

    for _ in range(6):
        await db.write(where, brief=True)

    assert commits == [here, here, THREAD, here, here, THREAD]


async def test_whether_a_disk_is_quick_is_found_out(
    db: Database, commits: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_QUICK", 0.02)

    for _ in range(60):  # the first are taken for slow, whatever they are
        await db.write(where, brief=True)

    assert commits[0] == THREAD
    assert commits[-1] != THREAD


async def test_commit_errors_on_the_loop_are_raised(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(link: Link) -> None:
        raise Unavailable("it is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Link, "check_file", gone)
        with pytest.raises(Unavailable):
            await db.write(where, brief=True)

    assert await db.write(where, brief=True)
    assert await rows(db) == 1


async def test_concurrent_writes_are_left_to_the_thread(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, asked = writing.Writer._finish_here, threading.Event()
    answers: list[str] = []

    def elsewhere() -> None:
        async def ask() -> None:
            job = db.submit(where, brief=True)
            asked.set()
            answers.append(await job)

        asyncio.run(ask())

    thread = threading.Thread(target=elsewhere)

    def slowly(writer: writing.Writer, group: writing.Group) -> None:
        if not asked.is_set():
            thread.start()
            assert asked.wait(10.0)
        finish(writer, group)

    monkeypatch.setattr(writing.Writer, "_finish_here", slowly)
    await db.write(where, brief=True)
    await asyncio.to_thread(thread.join, 10.0)

    assert answers == ["deadletter-writer"]
    assert await rows(db) == 2


async def test_closing_while_the_loop_commits_ends_the_thread(tmp_path: Path) -> None:
    database = await Database(tmp_path / "y.db", clock=SystemClock()).open()
    job = database.submit(lambda c: c.execute("CREATE TABLE t (n INTEGER)"), brief=True)
    async with asyncio.timeout(10):
        await asyncio.gather(job, database.close())
