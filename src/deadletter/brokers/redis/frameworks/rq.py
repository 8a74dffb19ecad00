"""
RQ: the failed registry `rq:failed:<queue>`, and a hash per job.

What a job would run is in `data`, mostly a pickle: it is bytes here and stays so.
The hash of a job that was taken in stays until RQ's own time for it is over.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from deadletter.core.message import Headers, Message
from deadletter.core.replay_rules import CopyState
from deadletter.intake.dialects import LINEAGE, Found, Origin, lineage_headers, lineage_of

from .framework import Client, inflated, is_sent, job_of, note_sent, oldest, packed, text, told

STORY_FIELD: Final = "dlq-story"
"""Field of a job with its earlier attempts, where our own worker runs it"""

_OVER: Final = (b"exc_info", b"result", STORY_FIELD.encode())  # of the runs that failed
_LINEAGE: Final = tuple(sorted(name.encode() for name in LINEAGE))
_FOR_EVER: Final = -1  # as Redis tells that a key has no expiry
FAILED_FOR: Final = 365 * 86_400  # seconds: RQ's own default
_SHOWN: Final = 4_096  # bytes of a field
_STATES: Final = {
    b"finished": CopyState.HANDLED,
    **dict.fromkeys((b"failed", b"stopped", b"canceled"), CopyState.DEAD),
    **dict.fromkeys((b"queued", b"started", b"deferred"), CopyState.THERE),
    **dict.fromkeys((b"created", b"scheduled"), CopyState.THERE),
}


class RQ:
    """
    Jobs go back as `rq requeue` does it.

    The hash of a job carries our lineage: RQ keeps fields that it does not know.
    """

    pattern = "rq:failed:*"
    keeps_names = True

    def queue_of(self, key: str) -> str:
        """Return the queue of a registry."""
        return key.removeprefix("rq:failed:")

    async def queues(self, client: Client) -> set[str]:
        """Return the queues that RQ has ever used."""
        known = await client.smembers("rq:queues")
        return {text(key).removeprefix("rq:queue:") for key in known}

    async def depth(self, client: Client, queue: str) -> int:
        """Return how many jobs have failed."""
        return int(await client.zcard(f"rq:failed:{queue}"))

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """Return failed jobs, in the order in which RQ will delete them."""
        ids = await oldest(client, f"rq:failed:{queue}", limit, held)
        if not ids:
            return ()
        async with client.pipeline(transaction=False) as pipe:
            for job, _ in ids:
                pipe.hgetall(b"rq:job:" + job)
                pipe.xrevrange(b"rq:results:" + job, count=1)
            answers = await pipe.execute()
        return [
            found_in(queue, job, fields, results)
            for (job, _), fields, results in zip(ids, answers[::2], answers[1::2], strict=True)
        ]

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Remove jobs from the registry; RQ keeps their hashes for its own time."""
        keys = [b"rq:job:" + receipt for receipt in receipts]
        async with client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.ttl(key)
            left = await pipe.execute()
            for key, seconds in zip(keys, left, strict=True):
                if seconds == _FOR_EVER:  # nothing else would ever remove it
                    pipe.expire(key, FAILED_FOR)
            pipe.zrem(f"rq:failed:{queue}", *receipts)
            await pipe.execute()

    async def put_back(self, client: Client, queue: str, message: Message, origin: Origin) -> None:
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
            **{name.encode(): v for name, v in lineage_headers(message.lineage)},
        }
        queued = f"rq:queue:{queue}"
        if await is_sent(client, queued, message):
            return
        async with client.pipeline(transaction=True) as pipe:
            pipe.hset(key, mapping=fields)
            pipe.hdel(key, *_OVER)
            pipe.persist(key)
            pipe.zrem(f"rq:failed:{queue}", job.id)
            pipe.sadd("rq:queues", queued)
            pipe.lrem(queued, 0, job.id)
            pipe.rpush(queued, job.id)
            note_sent(pipe, queued, message)
            await pipe.execute()

    async def state_of(
        self, client: Client, queue: str, message: Message, origin: Origin, since: datetime
    ) -> CopyState:
        """Return the state of the job in RQ, if it is still this copy."""
        key = b"rq:job:" + job_of(message, origin).id
        status, *marks = await client.hmget(key, b"status", *_LINEAGE)
        found = lineage_of(_lineage(dict(zip(_LINEAGE, marks, strict=True))))
        sent = message.lineage
        if sent is None or found is None:
            return CopyState.UNKNOWN
        if (found.letter_id, found.generation) != (sent.letter_id, sent.generation):
            return CopyState.UNKNOWN
        return _STATES.get(status, CopyState.UNKNOWN)


def found_in(
    queue: str,
    id: bytes,
    fields: dict[bytes, bytes],
    results: list[tuple[bytes, dict[bytes, bytes]]],
) -> Found:
    """Return a failed job of a queue, by its hash and its latest result."""
    beside = (*_OVER, *_LINEAGE, b"data")
    about = told(fields, limit=_SHOWN, without=beside)
    about["exc_info"] = _stack(fields, results)
    return Found(
        kind="rq",
        place=f"rq:{queue}",
        source=queue,
        id=text(id),
        body=fields.get(b"data", b""),
        headers=_lineage(fields),
        about=about,
        raw=packed(id, {k: v for k, v in fields.items() if k not in beside}),
        receipt=id,
    )


def _lineage(fields: Mapping[bytes, bytes | None]) -> Headers:
    found = ((name, fields.get(name)) for name in _LINEAGE)
    return tuple((text(name), value) for name, value in found if value is not None)


def _stack(fields: dict[bytes, bytes], results: list[tuple[bytes, dict[bytes, bytes]]]) -> str:
    if results:  # since RQ 1.12
        try:
            packed_text = b64decode(results[0][1].get(b"exc_string", b""))
        except NotBase64:
            packed_text = b""
        if stack := inflated(packed_text):
            return stack
    old = fields.get(b"exc_info", b"")
    return inflated(old) or text(old[:_SHOWN])
