"""
Procrastinate on PostgreSQL: 50 at once, a pool of 30, LISTEN/NOTIFY, uvloop.

It acknowledges after the handler, one by one. Failed jobs keep payload and attempts,
no error at all. Replay is a call for each job, 50 side by side; nothing is tracked.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import procrastinate
import psycopg
import uvloop

from peers.on_server import play_on_server, until
from workload import ATTEMPTS, BATCH, Measured, Watch, body, boom, must_be

logging.disable(logging.CRITICAL)

SLOTS = 50


async def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    last = asyncio.Event()
    watch = Watch(n, last.set)
    async with _filled(url, n, watch.hit) as (app, db):

        async def is_empty() -> bool:
            return await _count(db, "status IN ('todo', 'doing')") == 0

        return await _working(app, last, is_empty, watch.stop)


async def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is kept as failed."""
    last = asyncio.Event()
    watch = Watch(n * ATTEMPTS, last.set)
    async with _filled(url, n, _failing(watch)) as (app, db):
        return await _kill(app, db, last, watch, n)


async def replay(url: str, n: int) -> Measured:
    """What has failed is queued again."""
    last = asyncio.Event()
    dying = Watch(n * ATTEMPTS, last.set)
    async with _filled(url, n, _failing(dying)) as (app, db):
        await _kill(app, db, last, dying, n)
        watch = Watch(n)
        watch.start()
        failed = list(await app.job_manager.list_jobs_async(status="failed"))
        again, now = app.job_manager.retry_job_by_id_async, datetime.now(UTC)
        for start in range(0, n, SLOTS):
            some = failed[start : start + SLOTS]
            await asyncio.gather(*(again(job.id, now) for job in some))
        measured = watch.stop()
        must_be(await _count(db, "status = 'todo'"), n, "queued")
        return measured


def _failing(watch: Watch) -> Callable[[], None]:
    def fail() -> None:
        watch.hit()
        boom()

    return fail


async def _kill(
    app: procrastinate.App, db: Any, last: asyncio.Event, watch: Watch, n: int
) -> Measured:
    async def are_dead() -> bool:
        return await _count(db, "status = 'failed'") == n

    return await _working(app, last, are_dead, lambda: watch.stop(n))


async def _working(
    app: procrastinate.App, last: asyncio.Event, is_done: Any, stop: Callable[[], Measured]
) -> Measured:
    running = asyncio.create_task(
        app.run_worker_async(
            concurrency=SLOTS, fetch_job_polling_interval=0.05, install_signal_handlers=False
        )
    )
    await last.wait()
    await until(is_done)
    measured = stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return measured


@asynccontextmanager
async def _filled(
    url: str, n: int, on_call: Callable[[], None]
) -> AsyncIterator[tuple[procrastinate.App, Any]]:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=2, max_size=30)
    app = procrastinate.App(connector=connector)
    # Attempts are counted from 0 when it decides: two more make three.
    retrying = procrastinate.RetryStrategy(max_attempts=ATTEMPTS - 1, wait=0)

    @app.task(name="order", retry=retrying)
    async def handle(order: dict[str, Any]) -> None:
        on_call()

    async with app.open_async(), await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        await app.schema_manager.apply_schema_async()
        for start in range(0, n, BATCH):
            numbers = range(start, min(start + BATCH, n))
            await handle.batch_defer_async(*({"order": body(i)} for i in numbers))
        yield app, db


async def _count(db: Any, which: str) -> int:
    found = await db.execute(f"SELECT count(*) FROM procrastinate_jobs WHERE {which}")
    return int((await found.fetchone())[0])


if __name__ == "__main__":
    uvloop.install()
    play_on_server(happy, poison, replay)
