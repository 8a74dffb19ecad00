"""
huey on Redis: its consumer with eight threads.

It forgets a message when it takes it, so one whose worker dies is lost. Of what
failed for good it keeps the last error under the task's id, and no payload: there is
nothing to replay.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from huey import RedisHuey

from peers.on_server import play_on_server, wait_for
from workload import ATTEMPTS, Measured, Watch, body, boom

logging.disable(logging.CRITICAL)


def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    queue = RedisHuey("orders", url=url, results=False)
    last = threading.Event()
    watch = Watch(n, last.set)
    _fill(queue, n, watch.hit)
    return _working(queue, last, lambda: queue.pending_count() == 0, watch.stop)


def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then has an error for a result."""
    queue = RedisHuey("orders", url=url, results=True)
    last = threading.Event()
    watch = Watch(n * ATTEMPTS, last.set)

    def fail() -> None:
        watch.hit()
        boom()

    _fill(queue, n, fail)
    return _working(queue, last, lambda: queue.result_count() == n, lambda: watch.stop(n))


def _fill(queue: RedisHuey, n: int, on_call: Callable[[], None]) -> None:
    @queue.task(name="order", retries=ATTEMPTS - 1, retry_delay=0)
    def handle(order: dict[str, Any]) -> None:
        on_call()

    for number in range(n):
        handle(body(number))


def _working(
    queue: RedisHuey,
    last: threading.Event,
    is_done: Callable[[], bool],
    stop: Callable[[], Measured],
) -> Measured:
    consumer = queue.create_consumer(workers=8, periodic=False, initial_delay=0.01, max_delay=0.05)
    consumer.start()
    wait_for(last, is_done)
    measured = stop()
    consumer.stop_flag.set()
    return measured


if __name__ == "__main__":
    play_on_server(happy, poison)
