"""
One transaction at a time, and group commit.

What arrives while a transaction is being committed goes together into the next one:
no timers, nothing added when idle, large groups under load.

Brief jobs run on the event loop of whoever asks, and only their commit, which waits
for the disk, on our thread: two threads that take turns under one interpreter lock
cost more than they bring. Where the disk answers faster than a thread does, and nobody
else waits, the commit stays as well. Everything else runs on the thread from its
beginning. So do brief jobs while another process is writing, while the file answers
slowly, and when their event loop does not come around.
"""

import asyncio
import sqlite3
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

from deadletter.core.errors import BackendError, Unavailable

from .connection import AUTOCHECKPOINT, Link, is_busy, is_fatal, patiently

# What is to be done in a transaction, and who waits for it.

Work: TypeAlias = Callable[[sqlite3.Connection], Any]


class Job:
    """Something to be done in the next transaction, and who waits for it."""

    __slots__ = ("brief", "error", "future", "loop", "patient", "result", "work")

    def __init__(self, work: Work, *, brief: bool = False, patient: bool = False) -> None:
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


_GROUP: Final = 256  # jobs in one transaction, so that none waits for too many
_TURNS: Final = 4  # of an event loop, after which whoever was just woken has asked
_LATE: Final = 1.0  # seconds after which an event loop is not waited for
_LONG: Final = 0.05  # seconds that nobody should hold an event loop for...
_OFF: Final = 10.0  # ...and for how long nothing runs there if somebody did
_QUICK: Final = 0.0005  # seconds of a commit that is not worth a thread's turn
_COPIED: Final = 50  # commits after which the thread may copy the log into the file


class Writer:
    """
    Runs jobs one after another, a group per transaction.

    A job that raises is undone alone; its neighbours are committed without it.
    Nothing is reported as done before the commit that holds it has returned.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()  # over these four
        self._waiting: deque[Job] = deque()
        self._is_busy = False  # a group is under way: whoever has it goes on
        self._is_closed = False
        self._patience: Turn | None = None  # what an idle writer waits for
        self._groups: SimpleQueue[Group | None] = SimpleQueue()  # for the thread
        self._off_until = 0.0  # until then nothing runs on event loops
        self._usual = 1.0  # seconds that a commit takes, about
        self._alone = 0  # commits on event loops since the last one on the thread
        # A daemon: a process that forgets to close must still be able to end,
        # and what was reported as done is on disk.
        self._thread = threading.Thread(target=self._work, name="deadletter-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Have it done; its future is set once it is durable, or has failed."""
        with self._lock:
            if self._is_closed:
                job.error = Unavailable("the engine is closed")
                report([job])
                return
            self._waiting.append(job)
            if self._is_busy:
                if self._patience is not None and self._patience.loop is not job.loop:
                    self._lose_patience()
                return
            self._is_busy = True
            if job.patient or job.brief:
                # Who asks at the same time comes along, also where nobody is patient.
                turns = _TURNS if job.patient else 0
                self._patience = Turn(job.loop)
                job.loop.call_soon(self._soon, self._patience, turns)
                return
            group = self._next_group()
        self._start(group)

    def stop(self) -> None:
        """Finish what was submitted, and end. Blocks."""
        with self._lock:
            self._is_closed = True
            if not self._is_busy:
                self._groups.put(None)
            elif self._patience is not None:
                self._lose_patience()
        self._thread.join()

    def _lose_patience(self) -> None:
        """Leave the turn to the thread: an event loop may be gone for ever."""
        assert self._patience is not None
        self._patience.is_taken = True
        self._patience = None
        self._groups.put(self._next_group())

    def _work(self) -> None:
        group = self._groups.get()
        while group is not None:
            self._finish_on_thread(group)
            has_more = self._has_more()
            report(group.jobs)
            if has_more:
                group = self._offered()
            elif self._is_over():
                break
            else:
                group = self._groups.get()
        self._link.drop()

    def _has_more(self) -> bool:
        """Return whether to continue. If not, the next caller starts the writer again."""
        with self._lock:
            self._is_busy = bool(self._waiting)
            return self._is_busy

    def _is_over(self) -> bool:
        with self._lock:
            return self._is_closed and not self._is_busy

    def _offered(self) -> Group | None:
        """Offer the next turn to an event loop; what is left of it for the thread."""
        with self._lock:
            if not self._may_run_there(self._waiting):
                return self._next_group()
            turn = Turn(self._waiting[0].loop)
        try:
            turn.loop.call_soon_threadsafe(self._soon, turn, _TURNS)
        except RuntimeError:  # that loop is closed
            return self._taken_back(turn)
        try:
            return self._groups.get(timeout=_LATE)
        except Empty:
            return self._taken_back(turn)

    def _taken_back(self, turn: Turn) -> Group | None:
        """The turn of an event loop that has not come around, unless it just has."""
        with self._lock:
            if not turn.is_taken:
                turn.is_taken = True
                return self._next_group()
        return self._groups.get()

    def _soon(self, turn: Turn, turns: int) -> None:
        """
        Accept after some turns of the loop, with the jobs that come up in them.

        Those who wait for the group before have just been told: what they ask for
        next goes along, and half of all commits are saved.
        """
        if turns:
            turn.loop.call_soon(self._soon, turn, turns - 1)
        else:
            self._accept(turn)

    def _accept(self, turn: Turn) -> None:
        """Take a turn, on an event loop: with all that has come up meanwhile."""
        with self._lock:
            if turn.is_taken:
                return
            turn.is_taken = True
            self._patience = None
            group = self._next_group()
        self._start(group)

    def _start(self, group: Group) -> None:
        """On an event loop: run what may run here, and leave the rest to the thread."""
        is_finished = False
        try:
            if self._may_run_there(group.jobs):
                self._run_here(group)
                is_finished = self._may_finish_here(group)
        finally:
            if not is_finished:
                self._groups.put(group)
        if is_finished:
            self._finish_here(group)

    def _next_group(self) -> Group:
        count = min(len(self._waiting), _GROUP)
        return Group([self._waiting.popleft() for _ in range(count)])

    def _may_run_there(self, jobs: Iterable[Job]) -> bool:
        """Return whether these may run on an event loop."""
        if self._off_until and time.monotonic() < self._off_until:
            return False
        return all(job.brief for job in jobs)

    def _run_here(self, group: Group) -> None:
        """Run a group up to its commit, unless another process is writing."""
        began = time.monotonic()
        try:
            connection = self._link.get()
            if not _begun(connection):
                return
            group.has_run = True
            self._run(connection, group)
        except BaseException as error:
            group.fail(self._link.failed(error))
            if not isinstance(error, Exception):
                raise
        ended = time.monotonic()
        self._off_until = ended + _OFF if ended - began > _LONG else 0.0

    def _may_finish_here(self, group: Group) -> bool:
        """Return whether a commit here takes less time than handing it to the thread."""
        return (
            self._usual < _QUICK
            and self._alone < _COPIED
            and group.has_run
            and len(group.jobs) == 1
            and group.jobs[0].loop is asyncio.get_running_loop()
        )

    def _finish_here(self, group: Group) -> None:
        """Commit on an event loop, without copying the log, which may take long."""
        with suppress(sqlite3.Error, BackendError):  # the commit will say the same
            if not self._alone:
                self._link.get().execute("PRAGMA wal_autocheckpoint=0")
        self._alone += 1
        self._finish(group)
        with self._lock:
            rest = self._next_group() if self._waiting else None
            self._is_busy = rest is not None
            if self._is_busy or self._is_closed:
                self._groups.put(rest)
        settle(group.jobs)

    def _finish_on_thread(self, group: Group) -> None:
        if self._alone:
            self._alone = 0
            with suppress(sqlite3.Error, BackendError):
                self._link.get().execute(AUTOCHECKPOINT)
        self._finish(group)

    def _finish(self, group: Group) -> None:
        """Do what is left to do, and have it on disk."""
        if group.has_failed:
            return
        try:
            connection = self._link.get()
            if not group.has_run:
                patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
                self._run(connection, group)
            self._link.check_file()
            if connection.in_transaction:
                began = time.monotonic()
                connection.execute("COMMIT")
                self._note(time.monotonic() - began)
            for job in group.jobs:
                if job.error is not None:
                    job.error = self._link.translated(job.error)
        except BaseException as error:  # noqa: BLE001 -- the thread must live on
            # Whether it was committed is unknown if the commit itself failed, so
            # everybody in the group is told no, and will ask again.
            group.fail(self._link.failed(error))

    def _note(self, took: float) -> None:
        # One that was slow among many says little, one that was quick says much.
        self._usual += (took - self._usual) / (8 if took > self._usual else 2)

    def _run(self, connection: sqlite3.Connection, group: Group) -> None:
        self._link.check(connection)
        if len(group.jobs) == 1:
            run_alone(connection, group.jobs[0])
        else:
            run_together(connection, group.jobs)


def _begun(connection: sqlite3.Connection) -> bool:
    """Begin, without waiting: whether nobody else is writing."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if is_busy(error):
            return False
        raise
    return True
