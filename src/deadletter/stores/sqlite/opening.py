"""Making the file, or saying in one sentence why it cannot be used."""

import errno
import os
import sqlite3
import threading
from pathlib import Path
from typing import Final

from msgspec import Struct

from deadletter.core.errors import ConfigError

from .connection import (
    OpenFile,
    Synchronous,
    acquire,
    check_not_lost,
    connect,
    explained,
    install,
    is_busy,
    lock_problem,
)
from .opening import look, migrate

_OLDEST: Final = (3, 35)  # UPDATE ... FROM and RETURNING

_DIRECTORY: Final = (
    "we may not write into its directory: change the directory's owner or its mode,"
    " or change the path"
)
_SAYINGS: Final = {
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


def prepare(path: Path, synchronous: Synchronous) -> Prepared:
    """
    Make the file if it is missing and migrate it.

    Raises ConfigError with what to do when that cannot be. Blocks.
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
        return _prepared(acquire(path), synchronous)
    except OSError as error:
        saying = _SAYINGS.get(error.errno or 0, str(error))
        raise ConfigError(f"cannot use {path}: {saying}") from error
    except ConfigError as error:
        raise ConfigError(f"cannot use {path}: {error}") from error
    except sqlite3.Error as error:
        raise _refusal(error, path) from error


def _prepared(file: OpenFile, synchronous: Synchronous) -> Prepared:
    try:
        connection = connect(file.path, synchronous=synchronous, look=look)
        try:
            return Prepared(file, migrate(connection), lock_problem(file.path))
        finally:
            connection.close()
    except BaseException:
        file.release()
        raise


def _create(path: Path) -> None:
    if not _make(path):
        _check_access(path)
    # The name must survive a power cut too, whoever of several has just made it.
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _make(path: Path) -> bool:
    """Make the file, unless it is there."""
    # One that is there is not opened: closing it again would let go of the locks of all
    # connections this process has to it, and another would take the log away from them.
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _making:
        _check_log(path)
        try:
            # Nobody else may read what is in messages; SQLite gives its side files the
            # mode of this one.
            os.close(os.open(path, flags, 0o600))
        except FileExistsError:
            return False
    return True


def _check_log(path: Path) -> None:
    """Refuse to begin a new file beside the log of one that is gone."""
    log = Path(f"{path}-wal")
    if not path.exists() and log.exists() and log.stat().st_size:
        raise ConfigError(
            f"it is missing, but its log {log.name} is there: put the file back; to"
            f" begin with a new one, remove {log.name}"
        )


def _check_access(path: Path) -> None:
    if path.is_dir():
        raise ConfigError(_SAYINGS[errno.EISDIR])
    if os.access(path, os.R_OK | os.W_OK):
        return
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise ConfigError(_SAYINGS[errno.EROFS])
    raise ConfigError("we may not read and write it: change its owner or its mode")


def _refusal(error: sqlite3.Error, path: Path) -> Exception:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigError(f"{path} is not a SQLite database: use another file")
    # Its log is made beside it.
    if code in _UNMADE and not os.access(_real(path).parent, os.W_OK):
        return ConfigError(f"cannot use {path}: {_DIRECTORY}")
    if code == sqlite3.SQLITE_READONLY:
        return ConfigError(f"{path} cannot be written: check its permissions and its mount")
    if code == sqlite3.SQLITE_ERROR and not is_busy(error):
        return ConfigError(
            f"{path} holds tables of something else ({error}): use a file of its own"
        )
    return explained(error, path)


def _real(path: Path) -> Path:
    """Where links lead: there the file is made, and its log beside it."""
    return Path(os.path.realpath(path))
