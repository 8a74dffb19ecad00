"""
Redis by hand: a stream with a consumer group, pipelines of 100, nothing around it.

What a consumer on Redis could reach if its own code cost nothing.
"""

import json
from typing import Any

import redis

from peers.on_server import play_on_server
from peers.raw import told
from workload import ATTEMPTS, BATCH, Measured, Poison, Watch, bodies, boom, must_be

QUEUE, DEAD, GROUP = "orders", "orders:dead", "workers"
MOVE = """
local found = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', ARGV[1])
for _, one in ipairs(found) do
  redis.call('XADD', KEYS[2], '*', 'body', one[2][2])
  redis.call('XDEL', KEYS[1], one[1])
end
return #found
"""


def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    db = _filled(url, n)
    watch = Watch(n)
    while taken := _take(db):
        for _, fields in taken:
            json.loads(fields[b"body"])
            watch.hit()
        done = db.pipeline()
        _settle(done, taken)
        done.execute()
    measured = watch.stop()
    must_be(db.xlen(QUEUE), 0, "left")
    return measured


def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is dead."""
    db = _filled(url, n)
    measured = _kill(db, n)
    ((_, kept),) = db.xrange(DEAD, count=1)
    found = (int(kept[b"attempts"]), kept[b"history"].count(b"booked"))
    must_be(found, (ATTEMPTS, 2 * ATTEMPTS), "kept")
    must_be(db.xlen(DEAD), n, "dead")
    return measured


def replay(url: str, n: int) -> Measured:
    """Dead letters back to their queue, moved by a script a hundred at a time."""
    db = _filled(url, n)
    _kill(db, n)
    move = db.register_script(MOVE)
    watch = Watch(n)
    watch.start()
    while move(keys=[DEAD, QUEUE], args=[BATCH]):
        pass
    measured = watch.stop()
    must_be((db.xlen(DEAD), db.xlen(QUEUE)), (0, n), "dead and queued")
    return measured


def _kill(db: Any, n: int) -> Measured:
    watch = Watch(n)
    while taken := _take(db):
        done = db.pipeline()
        for _, fields in taken:
            json.loads(fields[b"body"])
            watch.hit()
            try:
                boom()
            except Poison as error:
                attempt = int(fields.get(b"attempts", 0)) + 1
                story = fields.get(b"history", b"").decode() + told(error, attempt)
                kept = {"body": fields[b"body"], "attempts": attempt, "history": story}
                done.xadd(QUEUE if attempt < ATTEMPTS else DEAD, kept)
        _settle(done, taken)
        done.execute()
    return watch.stop()


def _take(db: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    found = db.xreadgroup(GROUP, "me", {QUEUE: ">"}, count=BATCH)
    return found[0][1] if found else []


def _settle(pipeline: Any, taken: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
    ids = [id_ for id_, _ in taken]
    pipeline.xack(QUEUE, GROUP, *ids)
    pipeline.xdel(QUEUE, *ids)


def _filled(url: str, n: int) -> Any:
    db = redis.Redis.from_url(url, protocol=2)
    db.xgroup_create(QUEUE, GROUP, id="0", mkstream=True)
    ready = bodies(n)
    for start in range(0, n, BATCH):
        put = db.pipeline(transaction=False)
        for one in ready[start : start + BATCH]:
            put.xadd(QUEUE, {"body": one})
        put.execute()
    return db


if __name__ == "__main__":
    play_on_server(happy, poison, replay)
