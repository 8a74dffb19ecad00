"""
PgQueuer on PostgreSQL: asyncpg, uvloop, batches of 100, which is its best.

It acknowledges after the handler, in batches. Held failures keep the payload in the
job's row and a stack for each attempt in its log. Replay sets rows back, 500 to a
statement; nothing is tracked.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.core.executors import DatabaseRetryEntrypointExecutor
from pgqueuer.queries import Queries

from peers.on_server import play_on_server, until
from workload import ATTEMPTS, BATCH, Measured, Watch, bodies, boom, must_be

logging.disable(logging.CRITICAL)

REPLAYED = 500
RETRYING = {"max_attempts": ATTEMPTS - 1, "initial_delay": timedelta(0), "max_delay": timedelta(0)}


async def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    db = await _filled(url, n)
    last = asyncio.Event()
    watch = Watch(n, last.set)

    def register(worker: PgQueuer) -> None:
        @worker.entrypoint("orders", accepts_context=False)
        async def handle(job: Any) -> None:
            json.loads(job.payload)
            watch.hit()

    async def is_empty() -> bool:
        return await _count(db) == 0

    return await _working(url, register, last, is_empty, watch.stop)


async def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is held as failed."""
    db = await _filled(url, n)
    measured = await _kill(db, url, n)
    stacks = await db.fetchval("SELECT count(*) FROM pgqueuer_log WHERE traceback IS NOT NULL")
    must_be(stacks, n * ATTEMPTS, "stacks")
    return measured


async def replay(url: str, n: int) -> Measured:
    """What has failed is queued again."""
    db = await _filled(url, n)
    await _kill(db, url, n)
    queries = Queries.from_asyncpg_connection(db)
    watch = Watch(n)
    watch.start()
    failed = await db.fetch("SELECT id FROM pgqueuer WHERE status = 'failed'")
    for start in range(0, n, REPLAYED):
        some = failed[start : start + REPLAYED]
        await queries.requeue_jobs([row["id"] for row in some])
    measured = watch.stop()
    must_be(await _count(db, "status = 'queued'"), n, "queued")
    return measured


async def _kill(db: Any, url: str, n: int) -> Measured:
    last = asyncio.Event()
    watch = Watch(n * ATTEMPTS, last.set)

    def register(worker: PgQueuer) -> None:
        @worker.entrypoint(
            "orders",
            accepts_context=False,
            on_failure="hold",
            executor_factory=lambda given: DatabaseRetryEntrypointExecutor(given, **RETRYING),
        )
        async def handle(job: Any) -> None:
            json.loads(job.payload)
            watch.hit()
            boom()

    async def are_dead() -> bool:
        return await _count(db, "status = 'failed'") == n

    return await _working(url, register, last, are_dead, lambda: watch.stop(n))


async def _working(
    url: str,
    register: Callable[[PgQueuer], None],
    last: asyncio.Event,
    is_done: Any,
    stop: Callable[[], Measured],
) -> Measured:
    worker = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))
    register(worker)
    second = timedelta(seconds=1)
    running = asyncio.create_task(worker.run(batch_size=BATCH, dequeue_timeout=second))
    await last.wait()
    await until(is_done)
    measured = stop()
    worker.shutdown.set()
    await running
    return measured


async def _filled(url: str, n: int) -> Any:
    db = await asyncpg.connect(url)
    queries = Queries.from_asyncpg_connection(db)
    await queries.install()
    ready = bodies(n)
    for start in range(0, n, BATCH):
        some = ready[start : start + BATCH]
        await queries.enqueue(["orders"] * len(some), some, [0] * len(some))
    return db


async def _count(db: Any, which: str = "true") -> int:
    return int(await db.fetchval(f"SELECT count(*) FROM pgqueuer WHERE {which}"))


if __name__ == "__main__":
    uvloop.install()
    play_on_server(happy, poison, replay)
