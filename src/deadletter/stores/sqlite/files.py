"""
Locks of SQLite that no `close()` in this process can drop.

`ofd_locks.c` explains how. It is compiled when the package is installed; where that was
not possible, SQLite's own locks remain, and `lock_problem` says why.
"""

import ctypes
import os
import threading
import time
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from deadletter.core.errors import StoreLost

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
    Return why the locks on a file that is open can be dropped; None if they cannot.

    Installs the library first if this process has not tried yet. The answer is about
    this very file: it was locked through the library, on its own file system.
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
    import _sqlite3  # noqa: PLC0415 -- what `sqlite3` is made of, for its file only

    # A name finds the library's own dependencies first; some builds have it inside.
    try:
        sqlite = ctypes.CDLL(_sqlite3.__file__)
        find = sqlite.sqlite3_vfs_find
    except AttributeError:
        find = ctypes.CDLL(None).sqlite3_vfs_find
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_void_p
    address: int | None = find(b"unix")
    return address


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
        """Tell whether nothing is where the file should be."""
        return identity(self.path) is None

    def release(self) -> None:
        """Give it up; a file that is lost stays known, so that no other is begun."""
        with _lock:
            self.users -= 1
            if self.users or self.problem() is not None:
                return
            del _files[_key(self.path)]
            if self._pin is not None:
                os.close(self._pin)


def acquire(path: Path) -> OpenFile:
    """Return the file at `path`, which exists, as one in use by this process."""
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
    """Which file is there now; None when there is none."""
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
    return os.path.abspath(path)  # noqa: PTH100 -- a link keeps its own name
