"""A file with one table in it, and what is done to it to see where it is done."""

import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deadletter.stores.sqlite.engine import Database
from deadletter.system import SystemClock


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database(tmp_path / "x.db", clock=SystemClock()).open()
    await database.write(lambda c: c.execute("CREATE TABLE t (n INTEGER)"))
    yield database
    await database.close()


def where(connection: sqlite3.Connection) -> str:
    """Do something, and say on which thread."""
    connection.execute("INSERT INTO t VALUES (1)")
    return threading.current_thread().name


async def rows(db: Database) -> int:
    """How often that was done."""
    return await db.read(lambda c: int(c.execute("SELECT count(*) FROM t").fetchone()[0]))
