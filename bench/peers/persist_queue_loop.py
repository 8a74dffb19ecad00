"""
persist-queue's SQLiteAckQueue: a queue without a worker, in its documented loop.

Its default is WAL with synchronous=FULL. It counts no attempts and keeps no
errors; the loop counts in memory. Replay is a status set back, one by one, and
nothing is tracked.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from persistqueue import Empty, SQLiteAckQueue

from workload import ATTEMPTS, Measured, Poison, Watch, body, boom, must_be, play


def enqueue(folder: Path, n: int, setting: str) -> Measured:
    """One by one; there is no other way."""
    queue = _open(folder)
    ready = [body(number) for number in range(n)]
    watch = Watch(n)
    watch.start()
    for one in ready:
        queue.put(one)
    measured = watch.stop()
    must_be(queue.size, n, "queued")
    return measured


def happy(folder: Path, n: int, setting: str) -> Measured:
    """Drain what is queued."""
    queue = _filled(folder, n)
    watch = Watch(n)
    while (item := _next(queue)) is not None:
        watch.hit()
        queue.ack(item)
    measured = watch.stop()
    must_be(queue.acked_count(), n, "acked")
    return measured


def poison(folder: Path, n: int, setting: str) -> Measured:
    """Every message fails three times, then is marked as failed."""
    queue = _filled(folder, n)
    watch = Watch(n)
    tries: Counter[int] = Counter()
    while (item := _next(queue)) is not None:
        watch.hit()
        try:
            boom()
        except Poison:
            tries[item["pqid"]] += 1
            spent = tries[item["pqid"]] == ATTEMPTS
            (queue.ack_failed if spent else queue.nack)(item)
    measured = watch.stop()
    must_be(queue.ack_failed_count(), n, "failed")
    return measured


def replay(folder: Path, n: int, setting: str) -> Measured:
    """What has failed is made ready again."""
    queue = _filled(folder, n)
    while (item := _next(queue)) is not None:
        queue.ack_failed(item)
    watch = Watch(n)
    watch.start()
    for item in queue.queue():
        if str(item["status"]) == "9":
            queue.nack(id=item["id"])
    measured = watch.stop()
    must_be(queue.ready_count(), n, "queued")
    return measured


def _open(folder: Path) -> SQLiteAckQueue:
    return SQLiteAckQueue(str(folder / "persist-queue"), multithreading=True)


def _filled(folder: Path, n: int) -> SQLiteAckQueue:
    queue = _open(folder)
    for number in range(n):
        queue.put(body(number))
    return queue


def _next(queue: SQLiteAckQueue) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = queue.get(block=False, raw=True)
    except Empty:
        return None
    return found


if __name__ == "__main__":
    play({"enqueue": enqueue, "happy": happy, "poison": poison, "replay": replay})
