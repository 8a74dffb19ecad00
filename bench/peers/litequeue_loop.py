"""
litequeue: a queue without a worker, so the plainest loop around it.

Its default is synchronous=NORMAL, which survives `kill -9` but not a power cut.
It counts no attempts and keeps no errors; the loop counts in memory. Replay is a
status set back, one by one, and nothing is tracked.
"""

import json
from collections import Counter
from pathlib import Path

from litequeue import LiteQueue, MessageStatus

from workload import ATTEMPTS, Measured, Poison, Watch, body, boom, must_be, play


def enqueue(folder: Path, n: int, setting: str) -> Measured:
    """One by one; there is no other way."""
    queue = _open(folder)
    ready = [body(number) for number in range(n)]
    watch = Watch(n)
    watch.start()
    for one in ready:
        queue.put(json.dumps(one))
    measured = watch.stop()
    must_be(queue.qsize(), n, "queued")
    return measured


def happy(folder: Path, n: int, setting: str) -> Measured:
    """Drain what is queued."""
    queue = _filled(folder, n)
    watch = Watch(n)
    while (message := queue.pop()) is not None:
        json.loads(message.data)
        watch.hit()
        queue.done(message.message_id)
    return watch.stop()


def poison(folder: Path, n: int, setting: str) -> Measured:
    """Every message fails three times, then is marked as failed."""
    queue = _filled(folder, n)
    watch = Watch(n)
    tries: Counter[str] = Counter()
    while (message := queue.pop()) is not None:
        json.loads(message.data)
        watch.hit()
        try:
            boom()
        except Poison:
            tries[message.message_id] += 1
            spent = tries[message.message_id] == ATTEMPTS
            (queue.mark_failed if spent else queue.retry)(message.message_id)
    measured = watch.stop()
    must_be(len(list(queue.list_failed())), n, "failed")
    return measured


def replay(folder: Path, n: int, setting: str) -> Measured:
    """What has failed is made ready again."""
    queue = _filled(folder, n)
    failed = (MessageStatus.FAILED.value,)
    queue.conn.execute(f"UPDATE {queue.table} SET status = ?", failed)
    watch = Watch(n)
    watch.start()
    for message in list(queue.list_failed()):
        queue.retry(message.message_id)
    measured = watch.stop()
    must_be(queue.qsize(), n, "queued")
    return measured


def _open(folder: Path) -> LiteQueue:
    return LiteQueue(folder / "litequeue.db")


def _filled(folder: Path, n: int) -> LiteQueue:
    queue = _open(folder)
    with queue.transaction():
        for number in range(n):
            queue.put(json.dumps(body(number)))
    return queue


if __name__ == "__main__":
    play({"enqueue": enqueue, "happy": happy, "poison": poison, "replay": replay})
