"""
Locks of SQLite that no `close()` in this process can drop.

`ofd_locks.c` explains how. It is compiled when the package is installed; where that was
not possible, SQLite's own locks remain, and `lock_problem` says why.
"""

import ctypes
import os
import threading
from functools import cache
from pathlib import Path
from typing import Final

LIBRARY: Final = Path(__file__).with_name("_ofd_locks.so")

_COMPILER: Final = "install a C compiler and reinstall deadletter"
_FAILURES: Final = {  # results of dlq_ofd_install
    1: "this SQLite library does not let its system calls be replaced: use another"
    " build of Python",
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
