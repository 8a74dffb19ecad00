"""Locks on the file: what other code in the process opens and closes drops none."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deadletter.stores.sqlite import opening as file_locks
from deadletter.stores.sqlite.engine import Database
from deadletter.testing.fakes import FakeClock

INSERT = "INSERT INTO mailboxes (name) VALUES (?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
async def db(path: Path) -> AsyncIterator[Database]:
    database = await Database(path, clock=FakeClock()).open()
    await add(database, "first")
    yield database
    await database.close()


async def add(db: Database, name: str) -> None:
    await db.write(lambda c: c.execute(INSERT, (name,)).rowcount)


def files(path: Path) -> list[Path]:
    return [path, Path(f"{path}-wal"), Path(f"{path}-shm")]


def touch(path: Path) -> None:
    """Open and close the files as a backup does."""
    for file in files(path):
        file.open("rb").close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def run_elsewhere(code: str, *words: str) -> str:
    """Run Python code in a process of its own and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


VISIT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT group_concat(name) FROM mailboxes").fetchone()[0])
connection.close()
"""


async def test_closing_a_file_leaves_the_log_to_us(db: Database, path: Path) -> None:
    touch(path)

    run_elsewhere(VISIT, str(path))  # without our locks it would be the last user

    assert files(path)[1].exists()
    await add(db, "second")
    assert run_elsewhere(VISIT, str(path)) == "first,second"


async def test_a_write_lock_excludes_other_writers(db: Database, path: Path) -> None:
    write = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], timeout=0)\n"
        "try: connection.execute('BEGIN IMMEDIATE')\n"
        "except sqlite3.OperationalError as error: print(error)"
    )

    def work(connection: sqlite3.Connection) -> str:
        touch(path)
        return run_elsewhere(write, str(path))

    assert await db.write(work) == "database is locked"


async def test_a_backup_by_copying_drops_nothing(db: Database, path: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    target.mkdir()
    for file in files(path):
        shutil.copy(file, target)

    run_elsewhere(VISIT, str(path))

    await add(db, "second")
    assert run_elsewhere(VISIT, str(path)) == "first,second"


async def test_another_connection_of_the_process_drops_nothing(db: Database, path: Path) -> None:
    own = sqlite3.connect(path)
    own.execute("SELECT count(*) FROM mailboxes").fetchone()
    own.close()

    run_elsewhere(VISIT, str(path))

    assert files(path)[1].exists()


@pytest.mark.parametrize(
    "ending", ["os._exit(0)", "ctypes.pythonapi.Py_Exit(0)"], ids=["at-once", "usual"]
)
def test_a_forked_child_takes_no_lock_and_no_log_away(path: Path, ending: str) -> None:
    parent = f"""
import asyncio, ctypes, os, subprocess, sys
from pathlib import Path
from deadletter.stores.sqlite.engine import Database
from deadletter.testing.fakes import FakeClock
path = Path(sys.argv[1])
async def main():
    db = await Database(path, clock=FakeClock()).open()
    await db.write(lambda c: c.execute({INSERT!r}, ("first",)).rowcount)
    def work(connection):
        connection.execute({INSERT!r}, ("second",))
        child = os.fork()
        if not child:
            {ending}
        assert os.waitpid(child, 0)[1] == 0
        write = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0);"
        write += "c.execute('BEGIN IMMEDIATE')"
        done = subprocess.run([sys.executable, "-c", write, str(path)],
            capture_output=True, text=True)
        assert "database is locked" in done.stderr, done.stderr
    await db.write(work)
    print(await db.read(lambda c: c.execute(
        "SELECT group_concat(name) FROM mailboxes").fetchone()[0]))
    print(await db.read(lambda c: c.execute("PRAGMA integrity_check").fetchone()[0]))
asyncio.run(main())
"""
    assert run_elsewhere(parent, str(path)).split() == ["first,second", "ok"]


def test_a_child_that_outlives_its_parent_holds_no_lock(path: Path) -> None:
    parent = f"""
import asyncio, os, signal, sys, time
from deadletter.stores.sqlite.engine import Database
from deadletter.testing.fakes import FakeClock
async def main():
    db = await Database(sys.argv[1], clock=FakeClock()).open()
    def work(connection):
        connection.execute({INSERT!r}, ("never committed",))
        child = os.fork()
        if not child:
            os.close(1)
            os.close(2)
            time.sleep(60)
            os._exit(0)
        print(child, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    await db.write(work)
asyncio.run(main())
"""
    died = subprocess.run(
        [sys.executable, "-c", parent, str(path)], stdout=subprocess.PIPE, timeout=60, check=False
    )
    child = int(died.stdout)
    try:
        other = sqlite3.connect(path, timeout=0)
        other.execute(INSERT, ("ours",))
        other.commit()
        other.close()
    finally:
        os.kill(child, 9)


def test_connections_from_before_keep_their_locks(path: Path) -> None:
    code = """
import asyncio, sqlite3, subprocess, sys
from pathlib import Path
path = Path(sys.argv[1])
own, busy = path.with_name("own.db"), path.with_name("busy.db")
connections = [sqlite3.connect(p, isolation_level=None) for p in (own, busy)]
for connection in connections:
    connection.execute("CREATE TABLE t (x)")
reader, writer = connections
reader.execute("PRAGMA journal_mode=WAL")
reader.execute("INSERT INTO t VALUES (1)")
writer.execute("BEGIN IMMEDIATE")          # a write lock, held while we install
writer.execute("INSERT INTO t VALUES (1)")

from deadletter.stores.sqlite.opening import install, lock_problem
assert install() is None

def locked(p):
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0);"
    code += "c.execute('BEGIN IMMEDIATE'); c.execute('INSERT INTO t VALUES (2)');"
    code += "c.execute('COMMIT')"
    done = subprocess.run([sys.executable, "-c", code, str(p)], capture_output=True)
    return b"locked" in done.stderr or done.stderr.decode()

assert locked(busy) is True
writer.execute("COMMIT")
assert locked(busy) == ""                   # ...and is released
assert lock_problem(own) is None, lock_problem(own)
own.open("rb").close()
assert locked(own) == ""
assert Path(f"{own}-wal").exists()
for connection in connections:
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
    connection.close()
again = sqlite3.connect(busy)
again.execute("SELECT * FROM t").fetchall()
again.execute("BEGIN EXCLUSIVE")
assert lock_problem(busy) is None           # closed meanwhile: like any other now
"""
    run_elsewhere(code, str(path))


async def test_no_descriptor_is_left_open(path: Path) -> None:
    db = await Database(path, clock=FakeClock()).open()  # whatever is opened once
    await db.close()
    before = descriptors()
    for _ in range(5):
        db = await Database(path, clock=FakeClock()).open()
        await add(db, "x" + os.urandom(4).hex())
        await db.close()

    assert descriptors() <= before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_the_locks_of_an_engine_are_known_to_hold(db: Database) -> None:
    assert db.lock_problem is None


def test_a_missing_library_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite3.connect(path).close()
    path.touch()
    monkeypatch.setattr(file_locks, "LIBRARY", path.with_name("missing.so"))
    file_locks._install.cache_clear()
    try:
        problem = file_locks.lock_problem(path)
    finally:
        file_locks._install.cache_clear()

    assert problem is not None
    assert "missing.so was not built: install a C compiler" in problem
