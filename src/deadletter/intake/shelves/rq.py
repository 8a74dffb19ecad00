"""
RQ: the failed registry `rq:failed:<queue>`, and a hash per job.

What a job would run is in `data`, mostly a pickle: it is bytes here and stays so.
The hash of a job that was taken in stays until RQ's own time for it is over.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Collection, Sequence
from typing import Final

from deadletter.core.dialects import Found, Origin
from deadletter.core.message import Message

from .shelf import Client, inflated, job_of, oldest, packed, text, told

_OVER: Final = (b"exc_info", b"result")  # of the run that failed
_SHOWN: Final = 4_096  # bytes of a field


class RQ:
    """Jobs go back as `rq requeue` does it."""

    pattern = "rq:failed:*"

    def queue_of(self, key: str) -> str:
        """The queue of a registry."""
        return key.removeprefix("rq:failed:")

    async def depth(self, client: Client, queue: str) -> int:
        """How many have failed."""
        return int(await client.zcard(f"rq:failed:{queue}"))

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """The failed, in the order in which RQ will forget them."""
        ids = await oldest(client, f"rq:failed:{queue}", limit, held)
        if not ids:
            return ()
        async with client.pipeline(transaction=False) as pipe:
            for job, _ in ids:
                pipe.hgetall(b"rq:job:" + job)
                pipe.xrevrange(b"rq:results:" + job, count=1)
            answers = await pipe.execute()
        return [
            _found(queue, job, answers[2 * n], answers[2 * n + 1])
            for n, (job, _) in enumerate(ids)
        ]

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Out of the registry."""
        await client.zrem(f"rq:failed:{queue}", *receipts)

    async def put_back(
        self, client: Client, queue: str, message: Message, origin: Origin
    ) -> None:
        """Queue the job again, as it was before it ran."""
        job = job_of(message, origin)
        key = b"rq:job:" + job.id
        fields = {
            **{name: v for name, v in job.fields.items() if name not in _OVER},
            b"data": message.body,
            b"origin": queue.encode(),
            b"status": b"queued",
            b"started_at": b"",
            b"ended_at": b"",
        }
        async with client.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping=fields)
            pipe.hdel(key, *_OVER)
            pipe.persist(key)
            pipe.zrem(f"rq:failed:{queue}", job.id)
            pipe.sadd("rq:queues", f"rq:queue:{queue}")
            pipe.lrem(f"rq:queue:{queue}", 0, job.id)
            pipe.rpush(f"rq:queue:{queue}", job.id)
            await pipe.execute()


def _found(
    queue: str,
    id: bytes,
    fields: dict[bytes, bytes],
    results: list[tuple[bytes, dict[bytes, bytes]]],
) -> Found:
    about = told(fields, limit=_SHOWN, without=(*_OVER, b"data"))
    about["exc_info"] = _stack(fields, results)
    return Found(
        kind="rq",
        place=f"rq:{queue}",
        source=queue,
        id=text(id),
        body=fields.get(b"data", b""),
        about=about,
        raw=packed(id, {k: v for k, v in fields.items() if k not in (b"data", *_OVER)}),
        receipt=id,
    )


def _stack(
    fields: dict[bytes, bytes], results: list[tuple[bytes, dict[bytes, bytes]]]
) -> str:
    if results:  # since RQ 1.12
        try:
            packed_text = b64decode(results[0][1].get(b"exc_string", b""))
        except NotBase64:
            packed_text = b""
        if stack := inflated(packed_text):
            return stack
    old = fields.get(b"exc_info", b"")
    return inflated(old) or text(old[:_SHOWN])
