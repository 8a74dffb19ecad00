"""What is to be done in a transaction, and who waits for it."""

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from .connection import is_fatal

Work: TypeAlias = Callable[[sqlite3.Connection], Any]


class Job:
    """Something to be done in the next transaction, and who waits for it."""

    __slots__ = ("brief", "error", "future", "loop", "patient", "result", "work")

    def __init__(
        self, work: Work, *, brief: bool = False, patient: bool = False
    ) -> None:
        self.work = work
        self.brief = brief
        self.patient = patient  # would rather share a transaction than begin at once
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None


class Turn:
    """The next transaction, offered to an event loop."""

    __slots__ = ("is_taken", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_taken = False  # by the event loop, or back by the thread


class Group:
    """Jobs of one transaction, and how far it has come."""

    __slots__ = ("has_failed", "has_run", "jobs")

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.has_run = False  # on an event loop: what is left is the commit
        self.has_failed = False

    def fail(self, error: BaseException) -> None:
        """Tell everybody no."""
        self.has_failed = True
        for job in self.jobs:
            job.error = error


def run_alone(connection: sqlite3.Connection, job: Job) -> None:
    """Run the only job of a transaction; if it raises, nothing is left of either."""
    try:
        job.result = job.work(connection)
    except BaseException as error:
        if is_fatal(error) or not connection.in_transaction:
            raise
        connection.execute("ROLLBACK")
        job.error = error


def run_together(connection: sqlite3.Connection, jobs: Sequence[Job]) -> None:
    """Run jobs one after another; one that raises is undone alone."""
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


def report(jobs: Sequence[Job]) -> None:
    """Wake everybody who waits, each event loop once."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Job]] = defaultdict(list)
    for job in jobs:
        by_loop[job.loop].append(job)
    for loop, theirs in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, theirs)


def settle(jobs: Sequence[Job]) -> None:
    """Tell those who wait on this event loop."""
    for job in jobs:
        if job.future.done():  # the one who asked was cancelled
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
