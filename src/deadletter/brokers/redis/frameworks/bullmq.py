"""
BullMQ: the failed set `bull:<queue>:failed`, and a hash per job.

A queue with another prefix is named with it: `bullmq:{shop}:mail`. A job goes back
under its own id; while another job has that id it is refused, or gets an id of its own,
as whoever sends it has chosen.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha1
from importlib.resources import files
from typing import Final

import msgspec
from msgspec import structs

from deadletter.brokers.redis_common.attempt_field import restore_data
from deadletter.brokers.redis_common.job_envelope import opened, sealed
from deadletter.core.errors import Refused
from deadletter.core.message import Lineage, Message
from deadletter.core.origin import document, mapping
from deadletter.core.replay_rules import CopyState
from deadletter.intake.dialects import Found, Origin, lineage_headers

from .framework import Client, Job, job_of, oldest, packed, text, told

_COUNTED: Final = b"dlq:counted"  # what the data was before its attempts were counted in it
# Of the runs that failed: without them it starts over. Both spellings are BullMQ's.
_OVER: Final = frozenset(
    (
        *(b"finishedOn", b"processedOn", b"failedReason", b"stacktrace", b"defa"),
        *(b"atm", b"ats", b"attemptsMade", b"stc", b"returnvalue", b"progress"),
        *(b"pb", b"dlq:token", b"dlq:held", b"dlq:first", b"dlq:lease", b"dlq:story"),
        *(b"dlq:suspect", b"dlq:stc", b"dlq:charged", b"dlq:fate", _COUNTED),
    )
)
_ENVELOPE: Final = b"dlq"  # what our own messages have beyond a job
_LINEAGE: Final = b"dlq:lineage"  # the letter that a copy was made of
_INSTEAD: Final = b"dlq:instead-of"  # the id that a copy would have had
_STORY: Final = b"dlq:story"
_FATE: Final = b"dlq:fate"  # how a worker of ours gave it up
_DIGEST: Final = b":digest"  # of the data; no field of BullMQ begins with a colon
_LOGS: Final = b":logs"
_UNSHOWN: Final = (b"data", _ENVELOPE, _STORY, _LINEAGE)
_NOT_KEPT: Final = _OVER | {b"data", _LINEAGE, _INSTEAD, b"dlq:expires"}
_SHOWN: Final = 64 * 1024  # bytes of a field
_MOST_LOGS: Final = 1_000  # lines of a job's log that go with it, the latest
_LOG_BYTES: Final = 256 * 1024
_MOST_EVENTS: Final = 10_000  # that are looked through for one job
_PAGE: Final = 1_000
_PUT_BACK_AS: Final = frozenset({b"waiting", b"waiting-children"})
_ENDS: Final = {b"completed": CopyState.HANDLED, b"failed": CopyState.DEAD}

_lines: Final = msgspec.msgpack.Decoder(list[bytes]).decode
_lineage: Final = msgspec.json.Decoder(Lineage).decode


def _script(name: str) -> str:
    path = files(__package__ or "") / "lua" / f"bullmq_{name}.lua"
    return path.read_text("utf-8")


_PUT_BACK: Final = _script("put_back")
_FORGET: Final = _script("forget")
_IN_USE: Final = _script("in_use")


class BullMQ:
    """
    Jobs go back as `job.retry()` does it, with their attempts to be made anew.

    With `new_ids` a job whose id is in use goes back as `<id>-replay-<number>`, which
    names the other one in its field `dlq:instead-of`.
    """

    pattern = "bull:*:failed"
    keeps_names = True

    def __init__(self, *, new_ids: bool = False) -> None:
        self._new_ids = new_ids

    def queue_of(self, key: str) -> str:
        """Return the queue of a failed set."""
        return key.removeprefix("bull:").removesuffix(":failed")

    async def queues(self, client: Client) -> set[str]:
        """Return the queues that BullMQ has ever used."""
        keys = client.scan_iter(match="*:*:meta", count=1000, _type="hash")
        return {self.queue_of(text(key).removesuffix(":meta")) async for key in keys}

    async def depth(self, client: Client, queue: str) -> int:
        """Return how many jobs have failed."""
        return int(await client.zcard(f"{_base(queue)}failed"))

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """Return failed jobs, the oldest failure first."""
        base = _base(queue)
        ids = await oldest(client, f"{base}failed", limit, held)
        if not ids:
            return ()
        async with client.pipeline(transaction=False) as pipe:
            for job, _ in ids:
                pipe.hgetall(base.encode() + job)
                pipe.lrange(base.encode() + job + _LOGS, -_MOST_LOGS, -1)
            said = await pipe.execute()
        return [
            _found(queue, job, fields, logs)
            for (job, _), fields, logs in zip(ids, said[::2], said[1::2], strict=True)
        ]

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Remove jobs with their hashes and logs, unless they were retried meanwhile."""
        await client.eval(_FORGET, 1, _base(queue), *receipts)

    async def put_back(self, client: Client, queue: str, message: Message, origin: Origin) -> None:
        """Add a job to `wait`, or to `prioritized` by its priority, and wake a worker."""
        queue, job = _home(queue, origin), job_of(message, origin)
        fields = dict(job.fields)
        logs = _lines(fields.pop(_LOGS, b"\x90"))
        digest = _drained(job, message)
        fields.pop(_DIGEST, None)
        is_lifo = mapping(document(fields.get(b"opts", b""))).get("lifo") is True
        fields = {k: v for k, v in fields.items() if k not in _NOT_KEPT}
        fields |= _copied(fields, message)
        pairs = [part for pair in fields.items() for part in pair]
        other = _other(job, message) if self._new_ids else b""
        copy, lifo = _copy(message.lineage), int(is_lifo)
        words = (job.id, other, digest, copy, lifo, len(fields), *pairs, *logs)
        said = await client.eval(_PUT_BACK, 1, _base(queue), *words)
        if said:
            raise Refused(
                f"id-in-use: the queue {queue} has another job {text(job.id)!a}"
                f" ({text(said)}). Wait until that job is removed, or replay with"
                " --include id-in-use to send this one under a new id"
            )

    async def ids_in_use(
        self, client: Client, copies: Sequence[tuple[str, Message, Origin]]
    ) -> list[bool]:
        """Return for each queue, message and origin whether another job has its id."""
        asked: dict[int, tuple[str, bytes, bytes]] = {}
        for place, (queue, message, origin) in enumerate(copies):
            with suppress(Refused):  # its job is malformed, and is refused when sent
                job, base = job_of(message, origin), _base(_home(queue, origin))
                asked[place] = base, job.id, _drained(job, message)
        async with client.pipeline(transaction=False) as pipe:
            for words in asked.values():
                pipe.eval(_IN_USE, 1, *words)
            answers = await pipe.execute()
        in_use = {place for place, is_one in zip(asked, answers, strict=True) if is_one}
        return [place in in_use for place in range(len(copies))]

    async def state_of(
        self, client: Client, queue: str, message: Message, origin: Origin, since: datetime
    ) -> CopyState:
        """
        Return the state of a copy that was put back into this queue.

        A job that was removed when it ended is looked for among the latest events.
        """
        base, job = _base(_home(queue, origin)), job_of(message, origin)
        copy = _copy(message.lineage)
        for name in (job.id, _other(job, message)):
            put_at = await client.zscore(f"{base}dlq:copies", copy + b" " + name)
            if put_at is None:
                continue
            fields = await client.hgetall(base.encode() + name)
            if not fields:
                return await _ended(client, f"{base}events", name, int(put_at))
            lineage = _read_lineage(fields)
            if _copy(lineage) != copy:
                return CopyState.UNKNOWN  # another one has that id by now
            for end, state in _ENDS.items():
                if await client.zscore(f"{base}{text(end)}", name) is not None:
                    return state
            return CopyState.THERE
        return CopyState.UNKNOWN


async def _ended(client: Client, events: str, id: bytes, since: int) -> CopyState:
    """
    Return how a deleted job ended, by the events of its queue.

    They have to begin with its being put back, and what comes after another job of that
    id was added does not count.
    """
    state, is_seen, first = CopyState.UNKNOWN, False, b"%d" % since
    for _ in range(_MOST_EVENTS // _PAGE):
        page = await client.xrange(events, first, b"+", count=_PAGE)
        for _, event in page:
            if event.get(b"jobId") != id:
                continue
            kind = event.get(b"event")
            is_seen = is_seen or kind in _PUT_BACK_AS
            if kind == b"added":
                return state
            if is_seen:
                state = _ENDS.get(kind, state)
        if len(page) < _PAGE:
            return state
        first = b"(" + page[-1][0]
    return CopyState.UNKNOWN


def _base(queue: str) -> str:
    return f"{queue}:" if ":" in queue else f"bull:{queue}:"


def _home(queue: str, origin: Origin) -> str:
    """Return the queue with its prefix; letters of our own workers have only its name."""
    found_in = origin.place.partition(":")[2]
    return found_in if found_in.rpartition(":")[2] == queue else queue


def _found(queue: str, id: bytes, fields: dict[bytes, bytes], logs: Sequence[bytes]) -> Found:
    stored = fields.get(b"data", b"")
    data = restore_data(stored, fields.get(_COUNTED, b""))
    ours = opened(fields[_ENVELOPE], data) if _ENVELOPE in fields else None
    about = told(fields, limit=_SHOWN, without=_UNSHOWN)
    if _STORY in fields:
        about[text(_STORY)] = text(fields[_STORY])
    lineage = ours.lineage if ours else _read_lineage(fields)
    return Found(
        kind="bullmq",
        place=f"bullmq:{queue}",
        source=queue.rpartition(":")[2] if _FATE in fields else queue,
        id=ours.id if ours else text(fields.get(_INSTEAD, id)),
        body=ours.body if ours else data,
        headers=(*(ours.headers if ours else ()), *lineage_headers(lineage)),
        about=about,
        key=ours.key if ours else None,
        reply_to=ours.reply_to if ours else None,
        content_type=ours.content_type if ours else "application/json",
        raw=packed(id, _kept(fields, stored, logs)),
        receipt=id,
    )


def _kept(fields: dict[bytes, bytes], data: bytes, logs: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of a job beside its data, without those of its runs."""
    kept = {name: value for name, value in fields.items() if name not in _NOT_KEPT}
    kept[_DIGEST] = _digest(data)
    if latest := _latest(logs):
        kept[_LOGS] = msgspec.msgpack.encode(latest)
    return kept


def _latest(logs: Sequence[bytes]) -> list[bytes]:
    room, latest = _LOG_BYTES, []
    for line in reversed(logs):
        room -= len(line)
        if room < 0:
            break
        latest.append(line)
    return latest[::-1]


def _copied(fields: Mapping[bytes, bytes], message: Message) -> dict[bytes, bytes]:
    """Return the fields that identify a copy and its letter."""
    envelope = fields.get(_ENVELOPE)
    ours = None if envelope is None else opened(envelope, message.body)
    if ours is None:
        lineage = message.lineage
        marks = {} if lineage is None else {_LINEAGE: msgspec.json.encode(lineage)}
        return {b"data": message.body, **marks}
    copy = structs.replace(ours, body=message.body, lineage=message.lineage, expires_at=None)
    data, envelope = sealed(copy)
    return {b"data": data, _ENVELOPE: envelope}


def _read_lineage(fields: Mapping[bytes, bytes]) -> Lineage | None:
    envelope = fields.get(_ENVELOPE)
    if envelope is not None and (ours := opened(envelope, b"")) is not None:
        return ours.lineage
    try:
        return _lineage(fields.get(_LINEAGE, b""))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _copy(lineage: Lineage | None) -> bytes:
    """Return the name of a copy, by which it is queued only once."""
    if lineage is None:
        return b""
    return f"{lineage.letter_id}~{lineage.generation}".encode()


def _other(job: Job, message: Message) -> bytes:
    return job.id + b"-replay-%d" % message.generation


def _drained(job: Job, message: Message) -> bytes:
    """Return the digest of a job's data as it was drained."""
    return job.fields.get(_DIGEST, b"") or _digest(message.body)


def _digest(data: bytes) -> bytes:
    return sha1(data, usedforsecurity=False).hexdigest().encode()
