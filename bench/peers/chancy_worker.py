"""
Chancy on PostgreSQL: its asyncio executor, 200 at once, uvloop.

It writes outcomes behind, every 50 ms here (a second is its default), so a crash
runs them again. Failed jobs keep payload and a stack for each attempt. Replay sets
rows back, 500 to a statement; nothing is tracked.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import uvloop
from chancy import Chancy, Job, Queue, Reference, Worker
from chancy.plugins.leadership import Leadership
from chancy.plugins.pruner import Pruner
from chancy.plugins.recovery import Recovery

from peers.on_server import play_on_server, until
from workload import ATTEMPTS, Measured, Watch, body, boom, must_be

REPLAYED = 500
QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)

# Chancy finds handlers by import, so what they do is kept in the module.
on_call: list[Callable[[], None]] = []


async def handle(*, order: dict[str, Any]) -> None:
    """What jobs name."""
    on_call[-1]()


async def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    last = asyncio.Event()
    watch = Watch(n, last.set)
    on_call.append(watch.hit)
    async with _filled(url, n) as (chancy, db):

        async def is_empty() -> bool:
            return await _count(db, "state <> 'succeeded'") == 0

        return await _working(chancy, last, is_empty, watch.stop)


async def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is kept as failed."""
    async with _filled(url, n) as (chancy, db):
        measured = await _kill(chancy, db, n)
        (id_,) = (await _ids(db))[:1]
        job = await chancy.get_job(Reference(id_))
        must_be((job.attempts, len(job.errors)), (ATTEMPTS, ATTEMPTS), "kept")
        return measured


async def replay(url: str, n: int) -> Measured:
    """What has failed is queued again."""
    async with _filled(url, n) as (chancy, db):
        await _kill(chancy, db, n)
        watch = Watch(n)
        watch.start()
        failed = [Reference(id_) for id_ in await _ids(db)]
        for start in range(0, n, REPLAYED):
            await chancy.retry_jobs(failed[start : start + REPLAYED])
        measured = watch.stop()
        must_be(await _count(db, "state = 'retrying' AND attempts = 0"), n, "queued")
        return measured


async def _kill(chancy: Chancy, db: Any, n: int) -> Measured:
    last = asyncio.Event()
    watch = Watch(n * ATTEMPTS, last.set)

    def fail() -> None:
        watch.hit()
        boom()

    on_call.append(fail)

    async def are_dead() -> bool:
        return await _count(db, "state = 'failed'") == n

    return await _working(chancy, last, are_dead, lambda: watch.stop(n))


async def _working(
    chancy: Chancy, last: asyncio.Event, is_done: Any, stop: Callable[[], Measured]
) -> Measured:
    worker = Worker(chancy, tags={"here"}, shutdown_timeout=1)
    worker.send_outgoing_interval = 0.05
    async with worker:
        await last.wait()
        await until(is_done)
        return stop()


@asynccontextmanager
async def _filled(url: str, n: int) -> AsyncIterator[tuple[Chancy, Any]]:
    plugins = [Leadership(), Recovery(), Pruner()]
    async with (
        Chancy(url, log=QUIET, no_default_plugins=True, plugins=plugins) as chancy,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as db,
    ):
        await chancy.migrate()
        queue = Queue(
            name="orders",
            concurrency=200,
            tags={"here"},
            executor=Chancy.Executor.Async,
            polling_interval=1,
            eager_polling=True,
        )
        await chancy.declare(queue, upsert=True)
        one = Job(func="peers.chancy_worker.handle", queue="orders", max_attempts=ATTEMPTS)
        jobs = [one.with_kwargs(order=body(i)) for i in range(n)]
        async for _ in chancy.push_many(jobs):
            pass
        yield chancy, db


async def _ids(db: Any) -> list[Any]:
    found = await db.execute("SELECT id FROM chancy_jobs WHERE state = 'failed'")
    return [row[0] for row in await found.fetchall()]


async def _count(db: Any, which: str) -> int:
    found = await db.execute(f"SELECT count(*) FROM chancy_jobs WHERE {which}")
    return int((await found.fetchone())[0])


if __name__ == "__main__":
    from peers import chancy_worker as here

    uvloop.install()
    play_on_server(here.happy, here.poison, here.replay)
