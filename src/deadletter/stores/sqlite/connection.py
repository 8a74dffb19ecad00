"""
Connections to the file: opened safely, retried while busy, replaced when they fail.

Everything here blocks and belongs on a thread.
"""

import ctypes
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar
from weakref import WeakSet

from deadletter.core.errors import Refused, StoreLost, Unavailable
from deadletter.core.seals import PLAIN, Sealing
from deadletter.kit import ErrorKey, ErrorRow, ErrorTable

from .audit import OfficeConnection, teach

T = TypeVar("T")

Synchronous: TypeAlias = Literal["full", "normal"]

# 8 MB instead of 4: pages that change often are copied back less often. A larger log would
# grow for longer, and a growing log takes twice as long to sync.
AUTOCHECKPOINT: Final = "PRAGMA wal_autocheckpoint=2000"
PATIENCE: Final = 30.0  # seconds to wait for another process's write
_STATEMENTS: Final = 256  # prepared statements kept; each size of a batch has its own
_LEVELS: Final[dict[Synchronous, int]] = {"normal": 1, "full": 2}

# Errors by the plain code, which extended codes have in their lowest byte.

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# After these errors the state of a connection is unknown: it is closed.
_FATAL: Final[dict[ErrorKey, ErrorRow]] = {
    sqlite3.SQLITE_FULL: (Unavailable, "the disk is full: free some space, then work goes on"),
    sqlite3.SQLITE_IOERR: (Unavailable, "reading or writing failed: check the disk and its mount"),
    sqlite3.SQLITE_READONLY: (Unavailable, "the file is read-only: check its mode and its mount"),
    sqlite3.SQLITE_CANTOPEN: (
        Unavailable,
        "the file cannot be opened: check that it is there and readable",
    ),
    sqlite3.SQLITE_NOMEM: (Unavailable, "there is not enough memory"),
    **dict.fromkeys(
        (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
        (Refused, "the file is damaged: restore it from a backup"),
    ),
}


def error_code(error: BaseException) -> int:
    """Return the plain error code; errors of the sqlite3 module itself have 0."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


ERRORS: Final = ErrorTable(
    "SQLite",
    {
        **dict.fromkeys(
            _BUSY,
            (
                Unavailable,
                (
                    f"the database is busy: another process has locked it for {PATIENCE:.0f}"
                    " seconds; check which one has it open"
                ),
            ),
        ),
        **_FATAL,
        sqlite3.Error: (Refused, "SQLite refuses this"),
    },
    codes=lambda error: (error_code(error),),
)


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection held the lock."""
    return error_code(error) in _BUSY


def is_fatal(error: BaseException) -> bool:
    """Return whether the connection that raised this must not be used again."""
    return isinstance(error, sqlite3.Error) and error_code(error) in _FATAL


# Types that SQLite stores as they are. Without an adapter, `sqlite3` asks each value how to
# store it, which takes longer than writing it.
_AS_THEY_ARE: Final[dict[type[Any], Callable[[Any], Any]]] = {
    bytes: bytes.__bytes__,
    bool: bool.__int__,
    type(None): {}.get,
}
for _kind, _itself in _AS_THEY_ARE.items():
    if (_kind, sqlite3.PrepareProtocol) not in sqlite3.adapters:
        sqlite3.register_adapter(_kind, _itself)


def connect(
    path: Path,
    *,
    synchronous: Synchronous,
    look: Callable[[sqlite3.Connection], object],
    only_reads: bool = False,
    sealing: Sealing = PLAIN,
) -> sqlite3.Connection:
    """
    Open a connection with our settings; the file must exist.

    `look` reads the file before anything is written, and raises if it is not ours.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=0,  # we retry ourselves, in short random steps, which is fairer
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
        factory=OfficeConnection,
    )
    connection.sealing = sealing
    teach(connection, sealing)
    try:
        patiently(lambda: look(connection))
        patiently(lambda: _set_up(connection, synchronous))
        if only_reads:
            connection.execute("PRAGMA query_only=ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: sqlite3.Connection, synchronous: Synchronous) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise Refused(
            f"SQLite refuses write-ahead logging here (journal mode {mode}): use a local disk"
        )
    connection.execute(f"PRAGMA synchronous={synchronous}")
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    if level != _LEVELS[synchronous]:
        raise Refused(f"SQLite does not accept synchronous={synchronous} (it is {level})")
    # On macOS a plain fsync stops at the drive's cache. Elsewhere this has no effect.
    connection.execute("PRAGMA fullfsync=ON")
    connection.execute("PRAGMA checkpoint_fullfsync=ON")
    connection.execute(AUTOCHECKPOINT)
    connection.execute("PRAGMA journal_size_limit=67108864")
    connection.execute("PRAGMA cache_size=-16000")
    # The journal of one statement is small: a file would cost more.
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA secure_delete=FAST")
    connection.execute("PRAGMA foreign_keys=ON")


def patiently(work: Callable[[], T]) -> T:
    """Run `work`, again while another process is writing, for up to `PATIENCE` seconds."""
    waited = 0.0
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or waited > PATIENCE:
                raise
        # The jitter keeps processes out of step.
        pause = random.uniform(0.0002, 0.005)  # noqa: S311 -- not a secret
        time.sleep(pause)
        waited += pause


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the schema version of the file; 0 if it is empty."""
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return int(number)


# Database files that this process uses, and whether they are still in their place.
#
# A file that was removed or replaced is never accepted again by this process, neither by
# a connection that reopens nor by an engine that is opened later, unless the very same
# file is back.

Identity: TypeAlias = tuple[int, int]
FolderState: TypeAlias = tuple[int, int, int]

# Descriptors that only name a file: closing one drops no lock. Linux has them.
_NAMING_ONLY: Final[int] = getattr(os, "O_PATH", 0)
_SETTLED: Final = 100_000_000  # nanoseconds: file systems round times up to a tenth
_SECOND: Final = 1_000_000_000
_lock: Final = threading.Lock()  # over the files and their users
_files: Final[dict[str, "OpenFile"]] = {}


class OpenFile:
    """
    One database file in use.

    While it is in use its inode number cannot be given to another file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self._pin = os.open(path, _NAMING_ONLY | os.O_CLOEXEC) if _NAMING_ONLY else None
        self._identity = identity(path)

    def problem(self) -> str | None:
        """Return why the file cannot be used any more; None while it is in place."""
        found = identity(self.path)
        if found == self._identity:
            return None
        if found is None:
            return (
                f"{self.path} was removed or moved while this process used it: put the"
                f" same file back beside {self.path.name}-wal, or restore a backup,"
                " then restart"
            )
        return (
            f"{self.path} was replaced by another file while this process used it:"
            " stop every process that uses it, keep the right file, then restart"
        )

    def check(self) -> None:
        """Raise StoreLost if the file is not in its place."""
        problem = self.problem()
        if problem is not None:
            raise StoreLost(problem)

    def is_missing(self) -> bool:
        """Return whether nothing is where the file should be."""
        return identity(self.path) is None

    def release(self) -> None:
        """Release the file; a lost file stays known, so that no new one is created."""
        with _lock:
            self.users -= 1
            if self.users or self.problem() is not None:
                return
            del _files[_key(self.path)]
            if self._pin is not None:
                os.close(self._pin)


def acquire(path: Path) -> OpenFile:
    """Return the existing file at `path`, registered as in use by this process."""
    with _lock:
        file = _files.get(_key(path))
        if file is None:
            file = _files[_key(path)] = OpenFile(path)
        file.check()
        file.users += 1
        return file


def check_not_lost(path: Path) -> None:
    """Raise StoreLost if this process lost the file that was at `path`."""
    with _lock:
        file = _files.get(_key(path))
    if file is not None:
        file.check()


def identity(path: Path | str) -> Identity | None:
    """Return the identity of the file at `path`; None if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 -- once per transaction, and twice as fast
    except OSError:
        return None
    return found.st_dev, found.st_ino


def folder_state(folder: str) -> FolderState | None:
    """
    Return a value that changes when an entry of the folder is added or removed.

    Changes that follow each other faster than the file system's clock ticks share a
    value, so None is returned while the last change is recent, and where the file
    system counts in whole seconds. The change time is used because nobody can set it:
    a restored backup brings back the old modification time.
    """
    try:
        found = os.stat(folder)  # noqa: PTH116 -- once per transaction
    except OSError:
        return None
    changed = found.st_ctime_ns
    if changed % _SECOND == 0 or not changed + _SETTLED < time.time_ns():
        return None
    return found.st_dev, found.st_ino, changed


def _key(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 -- a symbolic link keeps its own name


# Connections that are replaced when they fail.

_links: Final[WeakSet["Link"]] = WeakSet()


class Link:
    """
    One connection to the file, for one thread at a time.

    The connection is opened when it is needed, and again after an error that leaves its
    state unknown, but never to another file than the one that the engine has opened.
    """

    def __init__(
        self,
        file: OpenFile,
        *,
        synchronous: Synchronous,
        schema: int,
        only_reads: bool = False,
        sealing: Sealing = PLAIN,
    ) -> None:
        self._file = file
        self._path = file.path
        self._only_reads = only_reads
        self._synchronous = synchronous
        self._schema = schema
        self._sealing = sealing
        self._connection: sqlite3.Connection | None = None
        self._beside: dict[str, Identity | None] = {}  # the -wal and -shm file
        # The state of the folder when all files were in place. The target of a symbolic
        # link is in another folder.
        self._folder = None if file.path.is_symlink() else str(file.path.parent)
        self._unchanged: FolderState | None = None
        _links.add(self)

    def get(self) -> sqlite3.Connection:
        """Return the connection; open it if need be."""
        if self._connection is None:
            self._file.check()  # before anything is written to another file
            self._connection = connect(
                self._path,
                synchronous=self._synchronous,
                look=self.check,
                only_reads=self._only_reads,
                sealing=self._sealing,
            )
            names = (f"{self._path}-wal", f"{self._path}-shm")
            self._beside = {name: identity(name) for name in names}
            self._unchanged = None
            self._file.check()
        return self._connection

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise Unavailable if another version of deadletter has migrated the file."""
        present = schema_version(connection)
        if present != self._schema:
            raise Unavailable(
                f"{self._path} has schema {present} now, but this process knows"
                f" {self._schema}: another version has migrated it, restart this process"
            )

    def check_file(self) -> None:
        """Raise StoreLost if one of the files was removed or replaced."""
        state = None if self._folder is None else folder_state(self._folder)
        if state is not None and state == self._unchanged:
            return  # one call instead of three
        problem = self.problem()
        if problem is not None:
            raise StoreLost(problem)
        self._unchanged = state

    def problem(self) -> str | None:
        """Return which of the files was removed or replaced; None if none was."""
        problem = self._file.problem()
        if problem is None and self._connection is not None:
            for name, before in self._beside.items():
                if identity(name) != before:
                    return (
                        f"{name} was removed or replaced while this process used it:"
                        " stop every process that uses the database, then restart"
                    )
        return problem

    def failed(self, error: BaseException) -> BaseException:
        """Roll back after an error, and return our error for it."""
        if is_fatal(error):
            self.drop()
        elif self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                self.drop()
        return self.translated(error)

    def translated(self, error: BaseException) -> BaseException:
        """Return our error for one of SQLite's; others as they are."""
        if not isinstance(error, sqlite3.Error):
            return error
        ours = ERRORS.translate(error, str(self._path))
        ours.__cause__ = error
        return ours

    def drop(self) -> None:
        """
        Close the connection, whatever state it is in.

        If the database is missing, its log stays: SQLite would remove it.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._file.is_missing():
            with suppress(sqlite3.Error):
                connection.rollback()
            _leave_open(connection)
            return
        with suppress(sqlite3.Error):
            connection.close()

    def abandon(self) -> None:
        """Forget the connection without closing it, in a forked child."""
        connection, self._connection = self._connection, None
        if connection is not None:
            _leave_open(connection)


def _leave_open(connection: sqlite3.Connection) -> None:
    """Keep a connection from being closed for as long as this process lives."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _abandon_all() -> None:
    # Closing would roll back, which changes the memory that is shared with the parent.
    for link in list(_links):
        link.abandon()


os.register_at_fork(after_in_child=_abandon_all)
