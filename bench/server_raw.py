"""
Produce, lease and complete by hand, with nothing around: SQLite and PostgreSQL.

The same batches as the server's clients send, one transaction each. SQLite has one
writer, so more clients are no more connections; PostgreSQL has one for each, up to
as many as a pool would have.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from peers import raw, raw_postgresql
from workload import Measured, must_be

POOL = 8


class Raw(Protocol):
    """An engine by hand."""

    async def produce(self, ready: Sequence[bytes], batch: int, clients: int) -> Measured:
        """Everything, in batches."""

    async def lease(self, n: int, batch: int, clients: int) -> tuple[Measured, Any]:
        """Everything that is there, in batches."""

    async def complete(self, lent: Any, n: int, clients: int) -> Measured:
        """Everything that was taken, in the batches it came in."""

    async def close(self) -> None:
        """Let go of it."""


class RawSqlite:
    """One connection; FULL, as the server's."""

    def __init__(self, folder: Path) -> None:
        self._db = sqlite3.connect(folder / "raw.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA cache_size=-16000")
        self._db.executescript(raw.SCHEMA)

    async def produce(self, ready: Sequence[bytes], batch: int, clients: int) -> Measured:
        """Everything, in batches."""
        began, cpu = time.perf_counter(), time.process_time()
        for at in range(0, len(ready), batch):
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(raw.PUT, [(one,) for one in ready[at : at + batch]])
            self._db.execute("COMMIT")
        return _stopped(len(ready), began, cpu)

    async def lease(self, n: int, batch: int, clients: int) -> tuple[Measured, Any]:
        """Everything that is there, in batches."""
        lent = []
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(n // batch):
            now = time.time()
            self._db.execute("BEGIN IMMEDIATE")
            taken = self._db.execute(raw.TAKE, (now + 60, now, batch)).fetchall()
            self._db.execute("COMMIT")
            lent.append([row[0] for row in taken])
        measured = _stopped(n, began, cpu)
        must_be(sum(map(len, lent)), n, "taken")
        return measured, lent

    async def complete(self, lent: Any, n: int, clients: int) -> Measured:
        """Everything that was taken, in the batches it came in."""
        began, cpu = time.perf_counter(), time.process_time()
        for ids in lent:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(raw.DONE, [(one,) for one in ids])
            self._db.execute("COMMIT")
        return _stopped(n, began, cpu)

    async def close(self) -> None:
        """Let go of it."""
        self._db.close()


class RawPostgresql:
    """A pool of connections, statements prepared."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str) -> "RawPostgresql":
        """A database of its own, with a table."""
        pool = await asyncpg.create_pool(url, min_size=1, max_size=POOL)
        await pool.execute(raw_postgresql.SCHEMA)
        return cls(pool)

    async def produce(self, ready: Sequence[bytes], batch: int, clients: int) -> Measured:
        """Everything, in batches."""
        put = "INSERT INTO queue (body) SELECT unnest($1::bytea[])"
        chunks = [ready[at : at + batch] for at in range(0, len(ready), batch)]
        return await self._all(
            len(ready), clients, [lambda db, c=c: db.execute(put, c) for c in chunks]
        )

    async def lease(self, n: int, batch: int, clients: int) -> tuple[Measured, Any]:
        """Everything that is there, in batches."""
        lent: list[list[int]] = []

        async def take(db: Any) -> None:
            rows = await db.fetch(raw_postgresql.TAKE, batch)
            lent.append([row["id"] for row in rows])

        measured = await self._all(n, clients, [take] * (n // batch))
        must_be(sum(map(len, lent)), n, "taken")
        return measured, lent

    async def complete(self, lent: Any, n: int, clients: int) -> Measured:
        """Everything that was taken, in the batches it came in."""
        done = raw_postgresql.DONE
        steps = [lambda db, ids=ids: db.execute(done, ids) for ids in lent]
        return await self._all(n, clients, steps)

    async def close(self) -> None:
        """Let go of it."""
        await self._pool.close()

    async def _all(
        self, n: int, clients: int, steps: Sequence[Callable[[Any], Awaitable[Any]]]
    ) -> Measured:
        left = iter(steps)

        async def work() -> None:
            async with self._pool.acquire() as db:
                for step in left:
                    await step(db)

        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work() for _ in range(min(clients, POOL))))
        return _stopped(n, began, cpu)


def _stopped(n: int, began: float, cpu: float) -> Measured:
    return Measured(n, time.perf_counter() - began, time.process_time() - cpu)
