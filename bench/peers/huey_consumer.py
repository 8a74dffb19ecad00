"""
huey on SQLite: one consumer thread, which is its best on one file.

It forgets a message when it takes it, so one whose worker dies is lost. Of what
failed for good it keeps the last error under the task's id, and no payload:
there is nothing to replay. `unsynced` turns fsync off.
"""

import logging
import threading
import time
from pathlib import Path
from typing import Any

from huey import SqliteHuey

from workload import ATTEMPTS, Measured, Watch, body, boom, must_be, play

logging.disable(logging.CRITICAL)


def enqueue(folder: Path, n: int, setting: str) -> Measured:
    """One by one; there is no other way."""
    queue = _open(folder, setting, results=False)
    task = queue.task(name="order")(lambda order: None)
    ready = [body(number) for number in range(n)]
    watch = Watch(n)
    watch.start()
    for one in ready:
        task(one)
    measured = watch.stop()
    must_be(queue.pending_count(), n, "queued")
    return measured


def happy(folder: Path, n: int, setting: str) -> Measured:
    """Drain what is queued."""
    queue = _open(folder, setting, results=False)
    last = threading.Event()
    watch = Watch(n, last.set)

    @queue.task(name="order")
    def handle(order: dict[str, Any]) -> None:
        watch.hit()

    for number in range(n):
        handle(body(number))
    _work(queue, last, lambda: queue.pending_count() == 0)
    return watch.stop()


def poison(folder: Path, n: int, setting: str) -> Measured:
    """Every message fails three times, then has an error for a result."""
    queue = _open(folder, setting, results=True)
    last = threading.Event()
    watch = Watch(n * ATTEMPTS, last.set)

    @queue.task(name="order", retries=ATTEMPTS - 1, retry_delay=0)
    def handle(order: dict[str, Any]) -> None:
        watch.hit()
        boom()

    for number in range(n):
        handle(body(number))
    _work(queue, last, lambda: queue.result_count() == n)
    return watch.stop(n)


def _open(folder: Path, setting: str, *, results: bool) -> SqliteHuey:
    # Its default is WAL with synchronous=FULL; fsync=False is synchronous=OFF.
    fsync = False if setting == "unsynced" else None
    path = str(folder / "huey.db")
    return SqliteHuey("orders", filename=path, fsync=fsync, results=results)


def _work(queue: SqliteHuey, last: threading.Event, is_done: Any) -> None:
    consumer = queue.create_consumer(workers=1, periodic=False, initial_delay=0.01, max_delay=0.05)
    consumer.start()
    last.wait()
    while not is_done():
        time.sleep(0.001)
    consumer.stop_flag.set()


if __name__ == "__main__":
    play({"enqueue": enqueue, "happy": happy, "poison": poison})
