"""
One connection to the file: opened safely, retried while busy, its errors in words.

Everything here blocks and belongs on a thread.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from deadletter.core.errors import BackendError, Refused, Unavailable
from deadletter.core.seals import PLAIN, Sealing

from .audit import OfficeConnection, teach

T = TypeVar("T")

Synchronous: TypeAlias = Literal["full", "normal"]

# Of 8 MB rather than 4: a page that changes often is copied back less often. More would
# take longer to grow, and a log that grows takes twice as long to sync.
AUTOCHECKPOINT: Final = "PRAGMA wal_autocheckpoint=2000"
PATIENCE: Final = 30.0  # seconds to wait for another process's write
_STATEMENTS: Final = 256  # prepared ones kept; a batch of each size is one
_LEVELS: Final[dict[Synchronous, int]] = {"normal": 1, "full": 2}

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# After these nobody knows what the connection still believes: it is thrown away.
_FATAL: Final = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, and it goes on by itself",
    sqlite3.SQLITE_IOERR: "reading or writing failed: check the disk and its mount",
    sqlite3.SQLITE_READONLY: "it cannot be written: check its mode and its mount",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that it is there and readable",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
}
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

# What SQLite takes as it is: unless somebody says so, `sqlite3` asks each value
# whether it would rather be another, which takes longer than writing it.
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
    A connection in the one mode we use; the file must be there.

    `look` reads what it holds before anything is written, and raises if it is not ours.
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
        raise Refused(f"write-ahead logging is refused here (journal mode {mode})")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    if level != _LEVELS[synchronous]:
        raise Refused(f"synchronous={synchronous} was not accepted (got {level})")
    # On macOS a plain fsync stops at the drive's cache; elsewhere this is nothing.
    connection.execute("PRAGMA fullfsync=ON")
    connection.execute("PRAGMA checkpoint_fullfsync=ON")
    connection.execute(AUTOCHECKPOINT)
    connection.execute("PRAGMA journal_size_limit=67108864")
    connection.execute("PRAGMA cache_size=-16000")
    # What undoes a statement half-way is of a batch's size, and not worth a file.
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA secure_delete=FAST")
    connection.execute("PRAGMA foreign_keys=ON")


def patiently(work: Callable[[], T]) -> T:
    """Do it, again and again while another process is writing, but not for ever."""
    waited = 0.0
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or waited > PATIENCE:
                raise
        # The jitter guards nothing, it only keeps processes out of step.
        pause = random.uniform(0.0002, 0.005)  # noqa: S311 -- not a secret
        time.sleep(pause)
        waited += pause


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else held the lock."""
    return _code(error) in _BUSY


def is_fatal(error: BaseException) -> bool:
    """Whether the connection it came from must not be used again."""
    if not isinstance(error, sqlite3.Error):
        return False
    code = _code(error)
    return code in _FATAL or code in _DAMAGED


def explained(error: sqlite3.Error, path: Path) -> BackendError:
    """Our error for one of SQLite's, saying what to do."""
    code = _code(error)
    if code in _BUSY:
        return Unavailable(
            f"the database is busy: {path} was locked by another process"
            f" for {PATIENCE:.0f} seconds; see who has it open"
        )
    if code in _FATAL:
        return Unavailable(f"{path}: {_FATAL[code]} ({error})")
    if code in _DAMAGED:
        return Refused(f"{path} is damaged ({error}): restore it from a backup")
    return Refused(f"{path}: {error}")


def _code(error: sqlite3.Error) -> int:
    # Extended codes carry the plain one in their lowest byte; errors of the
    # sqlite3 module itself have none.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
