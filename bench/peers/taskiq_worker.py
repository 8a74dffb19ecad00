"""
taskiq on Redis streams: 100 tasks at once, a hundred to a read, uvloop.

It acknowledges after the handler and never deletes what it has read. Of what failed
for good it keeps the error as a result, without payload and stack: there is nothing
to replay.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import redis.asyncio as redis
import uvloop
from taskiq import SimpleRetryMiddleware
from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from peers.on_server import play_on_server, until
from workload import ATTEMPTS, BATCH, Measured, Watch, body, boom

logging.disable(logging.CRITICAL)

QUEUE = "orders"


async def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    db = redis.Redis.from_url(url)
    last = asyncio.Event()
    watch = Watch(n, last.set)
    broker = await _filled(_broker(url), n, watch.hit)

    async def is_empty() -> bool:
        return bool((await db.xpending(QUEUE, "taskiq"))["pending"] == 0)

    return await _working(broker, last, is_empty, watch.stop)


async def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then has an error for a result."""
    results = f"{url.rsplit('/', 1)[0]}/1"
    db = redis.Redis.from_url(results)
    last = asyncio.Event()
    watch = Watch(n * ATTEMPTS, last.set)
    keeping = RedisAsyncResultBackend[Any](results)
    retrying = SimpleRetryMiddleware(default_retry_count=ATTEMPTS)

    def fail() -> None:
        watch.hit()
        boom()

    kept = _broker(url).with_result_backend(keeping).with_middlewares(retrying)
    broker = await _filled(kept, n, fail)

    async def are_dead() -> bool:
        return bool(await db.dbsize() == n)

    return await _working(broker, last, are_dead, lambda: watch.stop(n))


def _broker(url: str) -> Any:
    return RedisStreamBroker(url, queue_name=QUEUE, consumer_id="0", xread_count=BATCH)


async def _filled(broker: Any, n: int, on_call: Callable[[], None]) -> Any:
    @broker.task(task_name="order", retry_on_error=True, max_retries=ATTEMPTS)
    async def handle(order: dict[str, Any]) -> None:
        on_call()

    await broker.startup()
    for start in range(0, n, BATCH):
        numbers = range(start, min(start + BATCH, n))
        await asyncio.gather(*(handle.kiq(body(i)) for i in numbers))
    return broker


async def _working(
    broker: Any, last: asyncio.Event, is_done: Any, stop: Callable[[], Measured]
) -> Measured:
    broker.is_worker_process = True
    running = asyncio.create_task(run_receiver_task(broker, max_async_tasks=BATCH, max_prefetch=0))
    await last.wait()
    await until(is_done)
    measured = stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return measured


if __name__ == "__main__":
    uvloop.install()
    play_on_server(happy, poison)
