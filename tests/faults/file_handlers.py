"""
A worker whose handlers touch its database file: `python file_handlers.py DIR HOLD`.

HOLD is how many seconds `exclusive` keeps the database locked.
"""

import asyncio
import ctypes
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from deadletter.app import App
from deadletter.core.backoff import NoBackoff
from deadletter.core.policy import DLQPolicy
from deadletter.runtime.handlers import Context

PLACE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
HOLD = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
FILE = PLACE / "touched.db"
LEASE = 3.0 + 5 * HOLD  # nobody can extend a lease while the database is locked

one_at_a_time = asyncio.Lock()
app = App(f"sqlite:///{FILE}")


def open_file() -> None:
    FILE.open("rb").close()


def copy_files() -> None:
    # Not a TemporaryDirectory: forked children would remove it when they exit.
    folder = tempfile.mkdtemp(dir=PLACE)
    for file in (FILE, Path(f"{FILE}-wal"), Path(f"{FILE}-shm")):
        shutil.copy(file, folder)
    shutil.rmtree(folder)


def connect() -> None:
    with closing(sqlite3.connect(FILE, timeout=30)) as connection:
        connection.execute("SELECT count(*) FROM messages").fetchone()


def vacuum() -> None:
    with closing(sqlite3.connect(FILE, timeout=30)) as connection:
        connection.execute("VACUUM")


def exclusive() -> None:
    with closing(sqlite3.connect(FILE, timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(HOLD)
        connection.execute("COMMIT")


def fork_and_exit() -> None:
    if os.fork() == 0:
        ctypes.pythonapi.Py_Exit(0)  # as at the end of a script: all is closed


def fork_and_stay() -> None:
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)


IN_THREADS: dict[str, Callable[[], None]] = {
    "open": open_file,
    "copy": copy_files,
    "connect": connect,
    "vacuum": vacuum,
}
ON_LOOP: dict[str, Callable[[], None]] = {"fork-exit": fork_and_exit, "fork-stay": fork_and_stay}


async def touch(kind: str) -> None:
    if kind in ON_LOOP:
        ON_LOOP[kind]()
    elif kind == "exclusive":
        async with one_at_a_time:
            await asyncio.to_thread(exclusive)
            await asyncio.sleep(HOLD / 4)  # for those who waited
    else:
        await asyncio.to_thread(IN_THREADS[kind])


def note(line: str) -> None:
    os.write(effects, f"{line}\n".encode())


@app.handler("work", policy=DLQPolicy(max_attempts=100, backoff=NoBackoff()), lease=LEASE, slots=8)
async def handle(body: dict[str, str], context: Context) -> None:
    """Touch the file, send a copy, and note what was acknowledged."""
    number, kind = body["number"], body["kind"]
    note(f"run {number} {os.getpid()} {time.monotonic():.3f}")
    try:
        await touch(kind)
    except Exception as error:
        note(f"failed {number} {kind} {error!r}")
        raise
    copy = f"{number}-{os.getpid()}-{context.attempt}"
    await app.send("copies", {"number": number}, id=copy)
    note(f"sent {copy}")


if __name__ == "__main__":
    effects = os.open(PLACE / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sys.exit(app.run())
