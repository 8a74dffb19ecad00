"""
Dramatiq: `dramatiq:<queue>.XQ`, ids by time, with the messages in `.XQ.msgs`.

A queue of a broker with another namespace is named with it: `dramatiq:shop:default`.
"""

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from hashlib import md5
from typing import Any, Final

import msgspec

from deadletter.core.message import Headers, Message
from deadletter.core.origin import document, mapping, millis, words
from deadletter.core.replay_rules import CopyState
from deadletter.intake.dialects import LINEAGE, MALFORMED, Found, Origin, lineage_headers
from deadletter.intake.dialects.frameworks import RUNS

from .framework import Client, is_sent, job_of, note_sent, oldest, packed, text

_NAMESPACE: Final = "dramatiq"
_ID: Final = "redis_message_id"
# Options that Dramatiq writes whenever it sends or retries a message.
_RUNS: Final = (_ID, "retries", "traceback", "requeue_timestamp", "eta")
_OLD_AGE: Final = "dlq-max-age"  # the limit of a copy that goes beyond it
_OLD_QUEUE: Final = "dlq-queue-name"  # of a copy that goes to another queue
_RESULTS: Final = "dramatiq-results"
_FAILURE: Final = "dramatiq.results.Result"


class Dramatiq:
    """
    Messages go back as they were sent first, byte for byte, with retries to be made.

    The options carry our lineage: Dramatiq keeps those that it does not know.
    """

    pattern = "*:*.XQ"
    keeps_names = False  # an idle queue leaves nothing on the server

    def queue_of(self, key: str) -> str:
        """Return the queue of an `.XQ` key."""
        return key.removeprefix(f"{_NAMESPACE}:").removesuffix(".XQ")

    async def queues(self, client: Client) -> set[str]:
        """Return the queues with messages, alive or dead."""
        found: set[str] = set()
        async for key in client.scan_iter(match="*:*.msgs", count=1000, _type="hash"):
            name = text(key).removesuffix(".msgs").removesuffix(".DQ")
            found.add(self.queue_of(name))
        return found

    async def depth(self, client: Client, queue: str) -> int:
        """Return how many messages are dead."""
        return int(await client.zcard(f"{_base(queue)}.XQ"))

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """Return dead messages, the oldest first."""
        dead = f"{_base(queue)}.XQ"
        ids = await oldest(client, dead, limit, held)
        if not ids:
            return ()
        bodies = await client.hmget(f"{dead}.msgs", [name for name, _ in ids])
        return [
            found_in(queue, name, score, body)
            for (name, score), body in zip(ids, bodies, strict=True)
        ]

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Remove messages from the dead queue, with their contents."""
        dead = f"{_base(queue)}.XQ"
        async with client.pipeline(transaction=True) as pipe:
            pipe.zrem(dead, *receipts)
            pipe.hdel(f"{dead}.msgs", *receipts)
            await pipe.execute()

    async def put_back(self, client: Client, queue: str, message: Message, origin: Origin) -> None:
        """Send a message as Dramatiq's broker does."""
        base, name = _base(queue), job_of(message, origin).id
        if await is_sent(client, base, message):
            return
        async with client.pipeline(transaction=True) as pipe:
            pipe.hset(f"{base}.msgs", name, _addressed(base, message, name))
            pipe.lrem(base, 0, name)
            pipe.rpush(base, name)
            note_sent(pipe, base, message)
            await pipe.execute()

    async def state_of(
        self, client: Client, queue: str, message: Message, origin: Origin, since: datetime
    ) -> CopyState:
        """Return handled if the result is stored, or if the queue is empty."""
        base, name = _base(queue), job_of(message, origin).id
        told = mapping(document(message.body))
        actor, id_ = words(told.get("actor_name")), words(told.get("message_id"))
        home = words(told.get("queue_name"))
        key = f"{_RESULTS}:{home}:{actor}:{id_}"
        digest = md5(key.encode(), usedforsecurity=False).hexdigest()
        async with client.pipeline(transaction=True) as pipe:
            pipe.hexists(f"{base}.XQ.msgs", name)
            pipe.hexists(f"{base}.msgs", name)  # a retry has another name
            for suffix in (".XQ.msgs", ".msgs", ".DQ.msgs"):
                pipe.hlen(base + suffix)
            pipe.type(digest)
            is_dead, is_there, *left, kind = await pipe.execute()
        if is_dead or is_there:
            return CopyState.DEAD if is_dead else CopyState.THERE
        if not any(left):
            return CopyState.HANDLED
        if kind == b"list":
            result = mapping(document(await client.lindex(digest, 0) or b"null"))
            if result.get("__t") != _FAILURE:  # which may be of an earlier death
                return CopyState.HANDLED
        return CopyState.UNKNOWN


def _base(queue: str) -> str:
    return queue if ":" in queue else f"{_NAMESPACE}:{queue}"


def found_in(queue: str, name: bytes, score: float, body: bytes | None) -> Found:
    """Return a message of a queue that was found dead, or None where it should have been."""
    told = _opened(body or b"")
    about = {} if body else {MALFORMED: "its message is not there any more"}
    headers: Headers = ()
    if told is not None:
        options = told["options"]
        runs = {name: options.pop(name) for name in _RUNS if name in options}
        about[RUNS] = msgspec.json.encode(runs).decode()
        ours = {name: words(options.pop(name)) for name in LINEAGE & options.keys()}
        headers = tuple((name, value.encode()) for name, value in ours.items())
        told["queue_name"] = options.pop(_OLD_QUEUE, told.get("queue_name"))
        told["options"] = _renamed(options, _OLD_AGE, "max_age")
        body = _dumped(told)
    return Found(
        kind="dramatiq",
        place=f"dramatiq:{queue}",
        source=queue,
        id=text(name),
        body=body or b"",
        headers=headers,
        about=about,
        at=millis(int(score)),
        content_type="application/json",
        raw=packed(name, {}),
        receipt=name,
    )


def _opened(body: bytes) -> dict[str, Any] | None:
    """Return the document if encoding it again gives the same bytes, or None."""
    try:
        told = json.loads(body)
        is_same = _dumped(told) == body
    except (ValueError, RecursionError):
        return None
    is_whole = isinstance(told, dict) and isinstance(told.get("options"), dict)
    return told if is_whole and is_same else None


def _addressed(base: str, message: Message, name: bytes) -> bytes:
    """
    The message as its broker would send it, with our lineage in its options.

    It names the queue that it goes to, where Dramatiq sends retries.
    """
    try:
        told = json.loads(message.body)
    except (ValueError, RecursionError):
        return message.body
    if not isinstance(told, dict) or not isinstance(told.get("options"), dict):
        return message.body
    options = told["options"]
    if _ID in options or message.lineage is None:  # kept as it was found
        return message.body
    if message.expires_at is None:
        options = _renamed(options, "max_age", _OLD_AGE)
    lineage = {k: v.decode() for k, v in lineage_headers(message.lineage)}
    old, queue = told.get("queue_name"), base.rpartition(":")[2]
    moved = {} if old == queue else {_OLD_QUEUE: old}
    told["queue_name"] = queue
    told["options"] = options | {_ID: text(name)} | moved | lineage
    return _dumped(told)


def _renamed(options: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in options.items()}


def _dumped(told: Any) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode()
