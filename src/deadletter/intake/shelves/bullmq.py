"""
BullMQ: the failed set `bull:<queue>:failed`, and a hash per job.

A queue with another prefix is named with it: `bullmq:{shop}:mail`.
"""

from collections.abc import Collection, Sequence
from typing import Final

from deadletter.core.dialects import Found, Origin
from deadletter.core.dialects.values import document, mapping
from deadletter.core.message import Message

from .shelf import Client, job_of, oldest, packed, text, told

# Of the runs that failed: without them it starts over. Both spellings are BullMQ's.
_OVER: Final = (
    *(b"finishedOn", b"processedOn", b"failedReason", b"stacktrace"),
    *(b"atm", b"ats", b"attemptsMade", b"stc", b"returnvalue"),
)
_SHOWN: Final = 64 * 1024  # bytes of a field
_EVENTS: Final = 10_000  # kept in the stream of events, as BullMQ does
_TURN: Final = 0x100000000


class BullMQ:
    """Jobs go back as `job.retry()` does it, with their attempts to be made anew."""

    pattern = "bull:*:failed"

    def queue_of(self, key: str) -> str:
        """The queue of a failed set."""
        return key.removeprefix("bull:").removesuffix(":failed")

    async def depth(self, client: Client, queue: str) -> int:
        """How many have failed."""
        return int(await client.zcard(f"{_base(queue)}:failed"))

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """The failed, first failed first."""
        base = _base(queue)
        ids = await oldest(client, f"{base}:failed", limit, held)
        if not ids:
            return ()
        async with client.pipeline(transaction=False) as pipe:
            for job, _ in ids:
                pipe.hgetall(f"{base}:".encode() + job)
            jobs = await pipe.execute()
        return [
            _found(queue, job, fields)
            for (job, _), fields in zip(ids, jobs, strict=True)
        ]

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Off the set, with their hashes, which nothing else would ever remove."""
        base = _base(queue)
        async with client.pipeline(transaction=True) as pipe:
            pipe.zrem(f"{base}:failed", *receipts)
            pipe.delete(*(f"{base}:".encode() + job for job in receipts))
            await pipe.execute()

    async def put_back(
        self, client: Client, queue: str, message: Message, origin: Origin
    ) -> None:
        """Into `wait`, or `prioritized` by its priority, and wake a worker."""
        base, job = _base(queue), job_of(message, origin)
        fields = {k: v for k, v in job.fields.items() if k not in _OVER}
        version, paused = await client.hmget(f"{base}:meta", "version", "paused")
        major = _major(version or b"")
        priority = _priority(fields.get(b"priority", b""))
        turn = await client.incr(f"{base}:pc") if priority else 0
        # Before version 6 the jobs of a paused queue waited in a list of their own.
        waiting = "paused" if paused and major < 6 else "wait"
        is_lifo = mapping(document(fields.get(b"opts", b""))).get("lifo") is True
        async with client.pipeline(transaction=True) as pipe:
            key = f"{base}:".encode() + job.id
            pipe.hset(key, mapping={**fields, b"data": message.body})
            pipe.hdel(key, *_OVER)
            pipe.zrem(f"{base}:failed", job.id)
            if priority:
                score = priority * _TURN + turn % _TURN
                pipe.zadd(f"{base}:prioritized", {job.id: score})
            else:
                pipe.lrem(f"{base}:{waiting}", 0, job.id)
                push = pipe.rpush if is_lifo else pipe.lpush
                push(f"{base}:{waiting}", job.id)
            if major >= 5 and not paused:
                pipe.zadd(f"{base}:marker", {b"0": 0})
            event = {"event": "waiting", "jobId": job.id, "prev": "failed"}
            pipe.xadd(f"{base}:events", event, maxlen=_EVENTS, approximate=True)
            await pipe.execute()


def _base(queue: str) -> str:
    return queue if ":" in queue else f"bull:{queue}"


def _found(queue: str, id: bytes, fields: dict[bytes, bytes]) -> Found:
    return Found(
        kind="bullmq",
        place=f"bullmq:{queue}",
        source=queue,
        id=text(id),
        body=fields.get(b"data", b""),
        about=told(fields, limit=_SHOWN, without=(b"data",)),
        content_type="application/json",
        raw=packed(
            id, {k: v for k, v in fields.items() if k != b"data" and k not in _OVER}
        ),
        receipt=id,
    )


def _major(version: bytes) -> int:
    number = version.rpartition(b":")[2].partition(b".")[0]
    return int(number) if number.isdigit() and len(number) < 5 else 0


def _priority(value: bytes) -> int:
    # BullMQ knows none above two million.
    return min(int(value), 2_097_152) if value.isdigit() and len(value) < 9 else 0
