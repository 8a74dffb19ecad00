"""
Celery on Redis: a queue is a list of envelopes, with one more per priority.

Celery itself has no dead place there: a queue is drained that an application sends
its dead tasks to, or one whose workers are gone.
"""

import json
from base64 import b64encode
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from deadletter.core.errors import ConfigError, Refused
from deadletter.core.message import Message
from deadletter.core.origin import document, mapping, moment, words
from deadletter.core.replay_rules import CopyState
from deadletter.intake.dialects import Found, Origin, lineage_headers
from deadletter.intake.dialects.celery_envelope import Envelope, found_in, unpack
from deadletter.intake.dialects.frameworks import RESULT

from .framework import Client, is_sent, note_sent, text

_PRIORITIES: Final = ("", "\x06\x163", "\x06\x166", "\x06\x169")  # as kombu has them
_SEPARATOR: Final = "\x06\x16"  # between the parts of a binding
_RESULT: Final = "celery-task-meta-"
_LONGEST_RESULT: Final = 256 * 1024  # bytes of a result that are read
# How JSON is written by clients of Celery: kombu's way first.
_STYLES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"ensure_ascii": False},
    {"separators": (",", ":")},
    {"separators": (",", ":"), "ensure_ascii": False},
)


class Celery:
    """
    Tasks go back with their body byte for byte, and count their retries anew.

    The envelope names the queue that the task goes to, where Celery sends retries, and
    carries our lineage: Celery keeps headers that it does not know.
    """

    pattern = ""
    keeps_names = False  # kombu forgets the bindings of queues that nobody declares

    def __init__(self, results: Client | None = None) -> None:
        self._results = results

    def queue_of(self, key: str) -> str:
        """Return the key: it is the name of the queue."""
        return key

    async def queues(self, client: Client) -> set[str]:
        """Return the queues that kombu has bound, and those with tasks."""
        found: set[str] = set()
        async for key in client.scan_iter(match="_kombu.binding.*", _type="set"):
            for binding in await client.smembers(key):
                found.add(text(binding).rpartition(_SEPARATOR)[2])
        async for key in client.scan_iter(match="*", count=1000, _type="list"):
            found.add(text(key).partition(_SEPARATOR)[0])
        return found

    async def depth(self, client: Client, queue: str) -> int:
        """Return how many tasks a queue has."""
        async with client.pipeline(transaction=False) as pipe:
            for priority in _PRIORITIES:
                pipe.llen(queue + priority)
            return sum(await pipe.execute())

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """Return tasks, in the order in which workers would take them."""
        found: list[Found] = []
        for number, priority in enumerate(_PRIORITIES):
            most = limit + len(held)
            envelopes = await client.lrange(queue + priority, -most, -1)
            for envelope in reversed(envelopes):
                if envelope not in held and len(found) < limit:
                    found.append(found_in(queue, envelope, number))
        return await self._with_results(found)

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Remove tasks from the list."""
        async with client.pipeline(transaction=True) as pipe:
            for receipt in receipts:
                for priority in _PRIORITIES:
                    pipe.lrem(queue + priority, -1, receipt)
            await pipe.execute()

    async def put_back(self, client: Client, queue: str, message: Message, origin: Origin) -> None:
        """Send a task as kombu does."""
        try:
            envelope = unpack(origin.raw)
        except msgspec.MsgspecError as error:
            raise Refused(f"message {message.id} has lost its envelope") from error
        if not 0 <= envelope.priority < len(_PRIORITIES):
            raise ConfigError(
                f"message {message.id} has the priority {envelope.priority}; Celery on"
                f" Redis knows 0 to {len(_PRIORITIES) - 1}"
            )
        whole = message.body
        if not envelope.is_whole:
            whole = _addressed(envelope, queue, message)
        key = queue + _PRIORITIES[envelope.priority]
        if await is_sent(client, queue, message):
            return
        async with client.pipeline(transaction=True) as pipe:
            pipe.lrem(key, 0, whole)
            pipe.lpush(key, whole)
            note_sent(pipe, queue, message)
            await pipe.execute()

    async def state_of(
        self, client: Client, queue: str, message: Message, origin: Origin, since: datetime
    ) -> CopyState:
        """Return the state of a copy in the result backend, if one is named."""
        if self._results is None:
            return CopyState.UNKNOWN
        result = mapping(document(await self._results.get(_RESULT + message.id) or b""))
        done = moment(words(result.get("date_done")))
        if done is None or done <= since:
            return CopyState.UNKNOWN
        match result.get("status"):
            case "SUCCESS":
                return CopyState.HANDLED
            case "FAILURE" | "REVOKED":
                return CopyState.DEAD
            case _:
                return CopyState.UNKNOWN

    async def _with_results(self, found: list[Found]) -> list[Found]:
        """Add the result of each task from the result backend."""
        if self._results is None or not found:
            return found
        async with self._results.pipeline(transaction=False) as pipe:
            for one in found:
                pipe.getrange(_RESULT + one.id, 0, _LONGEST_RESULT)
            results = await pipe.execute()
        return [
            msgspec.structs.replace(one, about={**one.about, RESULT: text(result)})
            for one, result in zip(found, results, strict=True)
        ]


def _addressed(envelope: Envelope, queue: str, message: Message) -> bytes:
    """Return the envelope to send to a queue, with our lineage in its headers."""
    before, after = envelope.before, envelope.after
    sealed = b64encode(message.body)
    try:
        told = json.loads(before + after)
    except (ValueError, RecursionError):
        told = None
    properties, headers = mapping(told).get("properties"), mapping(told).get("headers")
    if not isinstance(properties, dict) or not isinstance(headers, dict):
        return before + sealed + after
    style = next((s for s in _STYLES if _dumped(told, s) == before + after), _STYLES[0])
    info = mapping(properties.get("delivery_info"))
    if info.get("routing_key") != queue:
        properties["delivery_info"] = info | {"exchange": "", "routing_key": queue}
    if message.lineage is not None:
        headers.update((k, v.decode()) for k, v in lineage_headers(message.lineage))
        if headers.get("retries"):
            headers["retries"] = 0
        if message.expires_at is None and headers.get("expires"):
            headers["expires"] = None
    return _dumped({**told, "body": sealed.decode()}, style)


def _dumped(told: Any, style: dict[str, Any]) -> bytes:
    return json.dumps(told, **style).encode("utf-8", "surrogatepass")
