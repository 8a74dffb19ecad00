"""
Where the transaction table is: SQLite by default, PostgreSQL by its URL.

Statements are written once, with `?1` for arguments. `migrate` brings the schema up to
date from the numbered files in `migrations/`, one transaction each, whoever else does
the same at the same time.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import asyncpg

from deadletter import ConfigError

MIGRATIONS: Final = Path(__file__).with_name("migrations")
_DONE: Final = "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)"
_LOCK: Final = 7_231_001  # of PostgreSQL; any number that nobody else uses
_PATIENCE: Final = 5.0  # seconds to wait for other writers, or for the server

Row = Sequence[Any]
T = TypeVar("T")


class Database(Protocol):
    """What the table needs of a database."""

    async def run(self, sql: str, *values: object) -> list[Row]:
        """Carry out one statement, durably; the rows it gives."""

    async def migrate(self, up_to: int | None = None) -> int:
        """Apply the migrations that are missing; how many those were."""

    async def close(self) -> None:
        """Let go of it."""


async def open_database(url: str) -> Database:
    """The database that a URL names."""
    if url.startswith("sqlite:///"):
        return await _Sqlite.opened(Path(url.removeprefix("sqlite:///")))
    if url.startswith(("postgresql://", "postgres://")):
        return await _PostgreSQL.opened(url)
    raise ConfigError(
        "DATABASE_URL is sqlite:///a/file.db or postgresql://host/name, not "
        f"{url.partition(':')[0]}:…"
    )


def _missing(done: set[int], up_to: int | None) -> list[tuple[int, str]]:
    numbered = [(int(f.name[:4]), f) for f in sorted(MIGRATIONS.glob("*.sql"))]
    return [
        (number, file.read_text())
        for number, file in numbered
        if number not in done and (up_to is None or number <= up_to)
    ]


class _Sqlite:
    """One connection on a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="transactions")

    @classmethod
    async def opened(cls, path: Path) -> "_Sqlite":
        database = cls(path)
        await database._there(database._open)
        return database

    async def run(self, sql: str, *values: object) -> list[Row]:
        return await self._there(lambda: self._run(sql, values))

    async def migrate(self, up_to: int | None = None) -> int:
        return await self._there(lambda: self._migrate(up_to))

    async def close(self) -> None:
        await self._there(self._connection.close)
        self._thread.shutdown()

    async def _there(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _run(self, sql: str, values: Row) -> list[Row]:
        rows: list[Row] = self._connection.execute(sql, values).fetchall()
        return rows

    def _open(self) -> None:
        self._connection = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")

    def _migrate(self, up_to: int | None) -> int:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        try:
            run(_DONE)
            done = {number for (number,) in run("SELECT number FROM migrations")}
            missing = _missing(done, up_to)
            for number, script in missing:
                run(script)
                run("INSERT INTO migrations VALUES (?1)", (number,))
            run("COMMIT")
        except BaseException:
            run("ROLLBACK")
            raise
        return len(missing)


class _PostgreSQL:
    """A few connections."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @classmethod
    async def opened(cls, url: str) -> "_PostgreSQL":
        return cls(
            await asyncpg.create_pool(url, min_size=1, max_size=5, command_timeout=_PATIENCE)
        )

    async def run(self, sql: str, *values: object) -> list[Row]:
        rows: list[Row] = await self._pool.fetch(sql.replace("?", "$"), *values)
        return rows

    async def migrate(self, up_to: int | None = None) -> int:
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            await connection.execute(_DONE)
            rows = await connection.fetch("SELECT number FROM migrations")
            missing = _missing({row[0] for row in rows}, up_to)
            for number, script in missing:
                await connection.execute(script)
                await connection.execute("INSERT INTO migrations VALUES ($1)", number)
        return len(missing)

    async def close(self) -> None:
        await self._pool.close()
