"""
Opening the file: create it, lock it safely, migrate it, or explain why it cannot be used.

`ofd_locks.c` gives SQLite locks that no `close()` in this process can drop. It is compiled
when the package is installed; where that was not possible, SQLite's own locks remain, and
`lock_problem` says why.
"""

import ctypes
import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Final

from msgspec import MsgspecError, Struct

from deadletter.core.errors import ConfigError
from deadletter.core.packing import sent_of
from deadletter.core.replay_rules import sortable_position

from .connection import (
    ERRORS,
    OpenFile,
    Synchronous,
    acquire,
    check_not_lost,
    connect,
    error_code,
    is_busy,
    patiently,
    schema_version,
)
from .sql import micros
from .text_index import lacks, set_up

_OLDEST: Final = (3, 35)  # UPDATE ... FROM and RETURNING

_DIRECTORY: Final = (
    "we may not write into its directory: change the directory's owner or its mode,"
    " or change the path"
)
_ADVICE: Final = {
    errno.ENOENT: "its directory does not exist: create it, or change the path",
    errno.ENOTDIR: "a part of its path is not a directory: change the path",
    errno.EISDIR: "it is a directory: name a file in it",
    errno.EACCES: _DIRECTORY,
    errno.EPERM: _DIRECTORY,
    errno.EROFS: "the file system is read-only: remount it, or change the path",
    errno.ENOSPC: "the disk is full: free some space",
    errno.ENAMETOOLONG: "the path is too long: shorten it",
}
_UNMADE: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
_making: Final = threading.Lock()


class Prepared(Struct, frozen=True):
    """A file that is ready for use."""

    file: OpenFile
    schema: int
    lock_problem: str | None  # why its locks can be dropped, if they can


def prepare(path: Path, synchronous: Synchronous, *, shared: bool = False) -> Prepared:
    """
    Create the file if it is missing, and migrate it. Blocks.

    A `shared` file may have tables of an application already. Raises ConfigError with what
    to do if the file cannot be used.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        raise ConfigError(
            f"SQLite {sqlite3.sqlite_version} is too old: use a Python that comes with"
            f" {'.'.join(map(str, _OLDEST))} or newer"
        )
    try:
        check_not_lost(path)
        _create(_real(path))
        install()
        return _prepared(acquire(path), synchronous, shared=shared)
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, str(error))
        raise ConfigError(f"cannot use {path}: {advice}") from error
    except ConfigError as error:
        raise ConfigError(f"cannot use {path}: {error}") from error
    except sqlite3.Error as error:
        raise _refusal(error, path) from error


def _prepared(file: OpenFile, synchronous: Synchronous, *, shared: bool) -> Prepared:
    try:
        connection = connect(file.path, synchronous=synchronous, look=partial(look, shared=shared))
        try:
            schema = migrate(connection, shared=shared)
            return Prepared(file, schema, lock_problem(file.path))
        finally:
            connection.close()
    except BaseException:
        file.release()
        raise


def _create(path: Path) -> None:
    if not _make(path):
        _check_access(path)
    # The name must survive a power cut too, whichever process has created the file.
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _make(path: Path) -> bool:
    """Create the file; return False if it exists."""
    # An existing file is not opened: closing it again would drop the locks of all
    # connections of this process, and another process could remove their log.
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _making:
        _check_log(path)
        try:
            # Nobody else may read messages. SQLite gives its side files the same mode.
            os.close(os.open(path, flags, 0o600))
        except FileExistsError:
            return False
    return True


def _check_log(path: Path) -> None:
    """Raise ConfigError for a missing file whose log is still there."""
    log = Path(f"{path}-wal")
    if not path.exists() and log.exists() and log.stat().st_size:
        raise ConfigError(
            f"it is missing, but its log {log.name} is there: put the file back; to"
            f" begin with a new one, remove {log.name}"
        )


def _check_access(path: Path) -> None:
    if path.is_dir():
        raise ConfigError(_ADVICE[errno.EISDIR])
    if os.access(path, os.R_OK | os.W_OK):
        return
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise ConfigError(_ADVICE[errno.EROFS])
    raise ConfigError("we may not read and write it: change its owner or its mode")


def _refusal(error: sqlite3.Error, path: Path) -> Exception:
    code = error_code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigError(f"{path} is not a SQLite database: use another file")
    # The log is created beside the file.
    if code in _UNMADE and not os.access(_real(path).parent, os.W_OK):
        return ConfigError(f"cannot use {path}: {_DIRECTORY}")
    if code == sqlite3.SQLITE_READONLY:
        return ConfigError(f"{path} cannot be written: check its permissions and its mount")
    if code == sqlite3.SQLITE_ERROR and not is_busy(error):
        return ConfigError(f"{path} has tables of another program ({error}): use a file of its own")
    return ERRORS.translate(error, str(path))


def _real(path: Path) -> Path:
    """Return the target of links, where the file and its log are created."""
    return Path(os.path.realpath(path))


# Locks.

LIBRARY: Final = Path(__file__).with_name("_ofd_locks.so")

_COMPILER: Final = "install a C compiler and reinstall deadletter"
_FAILURES: Final = {  # results of dlq_ofd_install
    1: "this SQLite library does not let its system calls be replaced: use another build of Python",
    2: "there is not enough memory",
    3: "/proc is not mounted: mount it",
}
_installing: Final = threading.Lock()


def lock_problem(path: Path) -> str | None:
    """
    Return why the locks on an open file can be dropped; None if they cannot.

    Installs the library first if this process has not tried yet. The answer holds
    for this file only: it was locked through the library, on its own file system.
    """
    problem = install()
    if problem is not None:
        return problem
    file = path.stat()
    if _library().dlq_ofd_holds(file.st_dev, file.st_ino):
        return None
    return (
        "SQLite does not lock this file through deadletter: another connection of this"
        " process had locked it before, or its file system has no OFD locks"
    )


def install() -> str | None:
    """Replace SQLite's way of locking, once per process; return why not if it fails."""
    with _installing:
        return _install()


@cache
def _install() -> str | None:
    if not LIBRARY.exists():
        return f"{LIBRARY.name} was not built: {_COMPILER} (Linux only)"
    try:
        vfs = _unix_vfs()
        result = _library().dlq_ofd_install(vfs)
    except (OSError, AttributeError) as error:
        return f"{LIBRARY.name} cannot be used ({error}): {_COMPILER}"
    return _FAILURES[result] if result else None


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(os.fspath(LIBRARY))
    library.dlq_ofd_install.argtypes = [ctypes.c_void_p]
    library.dlq_ofd_holds.argtypes = [ctypes.c_ulonglong, ctypes.c_ulonglong]
    return library


def _unix_vfs() -> int | None:
    """Return the address of the unix VFS in the SQLite library that Python uses."""
    import _sqlite3  # noqa: PLC0415 -- only for the path of its library

    # Names are looked up in the library's dependencies first; some builds have SQLite inside.
    try:
        sqlite = ctypes.CDLL(_sqlite3.__file__)
        find = sqlite.sqlite3_vfs_find
    except AttributeError:
        find = ctypes.CDLL(None).sqlite3_vfs_find
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_void_p
    address: int | None = find(b"unix")
    return address


# Numbered migrations, applied by the first process that opens the file.

MIGRATIONS: Final = files(__package__) / "migrations"
# Tables of the first migration: a file without them is not ours.
_OURS: Final = frozenset({"mailboxes", "tally", "messages", "ledger"})


@cache
def known() -> list[tuple[int, str]]:
    """Return number and text of every migration, in order."""
    found = [
        (int(file.name.partition("_")[0]), file.read_text("utf-8"))
        for file in MIGRATIONS.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)


def look(connection: sqlite3.Connection, *, shared: bool = False) -> int:
    """
    Return the schema version of a file, without changing anything.

    Raises ConfigError if the file belongs to another program, or to a newer version.
    """
    # One transaction, since another process may migrate the file meanwhile.
    connection.execute("BEGIN")
    try:
        return _present(connection, shared=shared)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def migrate(connection: sqlite3.Connection, *, shared: bool = False) -> int:
    """
    Apply missing migrations and return the version of the schema.

    Any number of processes may do this at once: one migrates, in one transaction. The
    others wait for it and find nothing left to do.
    """
    newest = known()[-1][0]
    if patiently(lambda: schema_version(connection) != newest or lacks(connection)):
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        try:
            _apply(connection, shared=shared)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return newest


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the functions to a connection with which migrations fill new columns."""
    connection.create_function("sent_at_of", 1, _sent_at, deterministic=True)
    connection.create_function("position_of", 1, _position, deterministic=True)


def _apply(connection: sqlite3.Connection, *, shared: bool) -> None:
    present = _present(connection, shared=shared)
    add_functions(connection)
    for number, text in known():
        if number > present:
            for statement in statements(text):
                connection.execute(statement)
    set_up(connection)
    connection.execute(f"PRAGMA user_version={known()[-1][0]}")


def _present(connection: sqlite3.Connection, *, shared: bool) -> int:
    present, newest = schema_version(connection), known()[-1][0]
    names = _names(connection)
    may_be_ours = _OURS.issubset(names) if present else shared or not names
    if not may_be_ours:
        held = f"it holds {names[0]!a}" if names else f"its user_version is {present}"
        shares = ", or add ?shared=true to the URL to keep its tables beside those"
        raise ConfigError(
            f"the file belongs to another program ({held}) and was left as it is:"
            f" name a file that only deadletter uses{'' if present else shares}"
        )
    if present > newest:
        raise ConfigError(
            f"the file was written by a newer deadletter (schema {present}, this one"
            f" knows {newest}): upgrade deadletter, or use another file"
        )
    return present


def _sent_at(rest: bytes | None) -> int | None:
    with suppress(MsgspecError, ValueError):  # a damaged letter has no time
        return None if rest is None else micros(sent_of(rest)[0])
    return None


def _position(rest: bytes | None) -> str | None:
    with suppress(MsgspecError, ValueError):
        return None if rest is None else sortable_position(sent_of(rest)[1])
    return None


def _names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of everything in the file, without what is SQLite's own."""
    found = connection.execute("SELECT name FROM sqlite_master ORDER BY name")
    return [name for (name,) in found if not name.startswith("sqlite_")]


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a script; `executescript` would commit before them."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
