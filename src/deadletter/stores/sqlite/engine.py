"""
The file, seen from an event loop: writes in groups, short reads beside them.

`write` and `read` take a function of a connection; it may run on a thread, so it
touches nothing but that connection and what it was given.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.grouping import GroupLimit
from deadletter.core.query import Meter
from deadletter.core.seals import Sealing
from deadletter.ports.features import Clock

from .connection import Link, OpenFile, Synchronous, identity, patiently
from .opening import prepare
from .writer import Job, Work, Writer

T = TypeVar("T")

_BRIEF: Final = 2_000_000  # bytes that are written in no time
_ROW: Final = 1_000  # ...of which a row costs so many, however small it is
_READERS: Final = 2
_SEARCHERS: Final = 2  # beside the readers: those who search wait for each other
_OFTEN: Final = 20_000  # steps of SQLite between two looks whether to go on


class Database:
    """
    One SQLite file, for any number of event loops and threads of this process.

    Other processes may use the same file at the same time.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Synchronous = "full",
        shared: bool = False,
        clock: Clock,
    ) -> None:
        self.path = Path(path)
        self.clock = clock
        self.group_limit = GroupLimit()
        self._synchronous = synchronous
        self._shared = shared
        self._pid = os.getpid()
        self._schema = 0
        self._file: OpenFile | None = None
        self._writing: Link | None = None
        self.lock_problem: str | None = None  # why its locks can be dropped
        self._writer: Writer | None = None
        self._readers = ThreadPoolExecutor(_READERS, "deadletter-reader")
        self._searchers = ThreadPoolExecutor(_SEARCHERS, "deadletter-search")
        self._links: SimpleQueue[Link] = SimpleQueue()
        self.sealing = Sealing()  # given its keys once the office is open

    async def open(self) -> "Database":
        """Make the file if it is missing, bring its schema up to date, and start."""
        found = await asyncio.to_thread(prepare, self.path, self._synchronous, shared=self._shared)
        self._schema, self._file = found.schema, found.file
        self.lock_problem = found.lock_problem
        self._writing = self._link(only_reads=False)
        self._writer = Writer(self._writing)
        return self

    async def close(self) -> None:
        """Finish what is under way and let go of the file. Twice is fine."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await asyncio.to_thread(self._stop, writer)

    async def write(
        self, work: Callable[[sqlite3.Connection], T], *, brief: bool = False, patient: bool = False
    ) -> T:
        """
        Run `work` in the next transaction; returns once that is durable.

        It is `brief` if it takes no longer than a handler may hold the event loop.

        When it raises, what it did is undone and the error is raised here.
        Cancelling the wait does not undo it: what was asked runs to its end.
        """
        return cast(T, await self.submit(work, brief=brief, patient=patient))

    def submit(
        self, work: Work, *, brief: bool = False, patient: bool = False
    ) -> asyncio.Future[Any]:
        """Have `work` run like `write` does, without waiting here."""
        job = Job(work, brief=brief, patient=patient)
        self._open_writer().submit(job)
        return job.future

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a snapshot of what has been committed. Keep it short."""
        self._open_writer()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    def lost(self) -> str | None:
        """Return why the file cannot be used any more; None while it is in place."""
        return None if self._writing is None else self._writing.problem()

    def is_same(self, path: str) -> bool:
        """Return whether a path leads to this file; raise StoreLost if it is not in place."""
        assert self._file is not None  # it is open
        self._file.check()
        return bool(path) and identity(path) == identity(self.path)

    @property
    def schema(self) -> int:
        """Return the version of the schema that this process knows."""
        return self._schema

    async def search(self, work: Callable[[sqlite3.Connection], T], meter: Meter) -> T:
        """Run `work` like `read` does, but in nobody's way; it ends with the wait."""
        self._open_writer()

        def watched(connection: sqlite3.Connection) -> T:
            connection.set_progress_handler(lambda: meter.is_stopped, _OFTEN)
            try:
                return work(connection)
            finally:
                connection.set_progress_handler(None, 0)

        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._searchers, self._read, watched)
        finally:
            meter.stop()

    def reader(self) -> Link:
        """A way of one's own to the file, for looking only."""
        return self._link(only_reads=True)

    def _link(self, *, only_reads: bool) -> Link:
        assert self._file is not None  # it is open
        return Link(
            self._file,
            synchronous=self._synchronous,
            schema=self._schema,
            only_reads=only_reads,
            sealing=self.sealing,
        )

    def _open_writer(self) -> Writer:
        if self._pid != os.getpid():
            raise ConfigError(
                "this engine was opened before a fork and cannot be used in the child:"
                " open it again there, after the fork"
            )
        if self._writer is None:
            raise Unavailable(f"{self.path} is closed")
        return self._writer

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            link = self._links.get_nowait()
        except Empty:
            link = self.reader()
        try:
            connection = link.get()
            link.check_file()
            return patiently(lambda: _snapshot(connection, work))
        except sqlite3.Error as error:
            raise link.failed(error) from error
        finally:
            self._links.put(link)

    def _stop(self, writer: Writer) -> None:
        writer.stop()
        self._readers.shutdown()
        self._searchers.shutdown()
        while not self._links.empty():
            self._links.get().drop()
        if self._file is not None:
            self._file.release()


def _snapshot(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def is_brief(rows: int, size: int = 0) -> bool:
    """Return whether a transaction of this size may run on the event loop."""
    return rows * _ROW + size < _BRIEF
