"""
The one thread that writes, and group commit.

What arrives while a transaction is being committed goes together into the next
one: no timers, nothing added when idle, large groups under load.
"""

import asyncio
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

from deadletter.core.errors import Unavailable

from .connection import is_fatal, patiently
from .link import Link

Work: TypeAlias = Callable[[sqlite3.Connection], Any]

_GROUP: Final = 256  # jobs in one transaction, so that none waits for too many


class Job:
    """Something to be done in the next transaction, and who waits for it."""

    __slots__ = ("error", "future", "loop", "result", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    """
    Runs jobs one after another on its own thread, a group per transaction.

    A job that raises is undone alone; its neighbours are committed without it.
    Nothing is reported as done before the commit that holds it has returned.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # A daemon: a process that forgets to close must still be able to end,
        # and what was reported as done is on disk.
        self._thread = threading.Thread(
            target=self._work, name="deadletter-writer", daemon=True
        )
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Have it done; its future is set once it is durable, or has failed."""
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish what was submitted, and end. Blocks."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        more = True
        while more:
            jobs, more = self._next_group()
            if jobs:
                self._transact(jobs)
                _report(jobs)
        self._link.drop()
        self._turn_away()

    def _next_group(self) -> tuple[list[Job], bool]:
        jobs: list[Job] = []
        try:
            job = self._jobs.get()
            while job is not None:
                jobs.append(job)
                if len(jobs) == _GROUP:
                    return jobs, True
                job = self._jobs.get_nowait()
        except Empty:
            return jobs, True
        return jobs, False

    def _transact(self, jobs: Sequence[Job]) -> None:
        try:
            connection = self._link.get()
            patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
            self._link.check(connection)
            if len(jobs) == 1:
                _run_alone(connection, jobs[0])
            else:
                _run_together(connection, jobs)
            self._link.check_file()
            if connection.in_transaction:
                connection.execute("COMMIT")
            for job in jobs:
                if job.error is not None:
                    job.error = self._link.told(job.error)
        except BaseException as error:  # noqa: BLE001 -- the thread must live on
            # Whether it was committed is unknown if the commit itself failed, so
            # everybody in the group is told no, and will ask again.
            failure = self._link.failed(error)
            for job in jobs:
                job.error = failure

    def _turn_away(self) -> None:
        late: list[Job] = []
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                break
            if job is not None:
                job.error = Unavailable("the engine is closed")
                late.append(job)
        _report(late)


def _run_alone(connection: sqlite3.Connection, job: Job) -> None:
    try:
        job.result = job.work(connection)
    except BaseException as error:
        if is_fatal(error) or not connection.in_transaction:
            raise
        connection.execute("ROLLBACK")
        job.error = error


def _run_together(connection: sqlite3.Connection, jobs: Sequence[Job]) -> None:
    for job in jobs:
        connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except BaseException as error:
            if is_fatal(error) or not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO job")
            job.error = error
        connection.execute("RELEASE job")


def _report(jobs: Sequence[Job]) -> None:
    """Wake everybody who waits, each event loop once."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Job]] = defaultdict(list)
    for job in jobs:
        by_loop[job.loop].append(job)
    for loop, theirs in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, theirs)


def _settle(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():  # the one who asked was cancelled
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
