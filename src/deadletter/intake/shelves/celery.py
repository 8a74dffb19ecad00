"""
Celery on Redis: a queue is a list of envelopes, with one more per priority.

Celery itself has no dead place there: a queue is drained that an application sends
its dead tasks to, or one whose workers are gone.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.dialects import MALFORMED, Found, Origin
from deadletter.core.dialects.values import document, mapping, words
from deadletter.core.errors import ConfigError, Refused
from deadletter.core.message import Message

from .shelf import Client

_PRIORITIES: Final = ("", "\x06\x163", "\x06\x166", "\x06\x169")  # as kombu has them


class Envelope(Struct, frozen=True, array_like=True):
    """An envelope without the body in it, and the priority of its queue."""

    before: bytes
    after: bytes
    priority: int = 0
    is_whole: bool = False  # the body is the envelope: it could not be opened


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Envelope).decode


class Celery:
    """Envelopes go back byte for byte; what is seen of them is the body within."""

    pattern = ""

    def queue_of(self, key: str) -> str:
        """The queue is the key."""
        return key

    async def depth(self, client: Client, queue: str) -> int:
        """How many tasks are in it."""
        async with client.pipeline(transaction=False) as pipe:
            for priority in _PRIORITIES:
                pipe.llen(queue + priority)
            return sum(await pipe.execute())

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """The tasks, in the order in which workers would take them."""
        found: list[Found] = []
        for number, priority in enumerate(_PRIORITIES):
            most = limit + len(held)
            envelopes = await client.lrange(queue + priority, -most, -1)
            for envelope in reversed(envelopes):
                if envelope not in held and len(found) < limit:
                    found.append(_found(queue, envelope, number))
        return found

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Out of the list."""
        async with client.pipeline(transaction=True) as pipe:
            for receipt in receipts:
                for priority in _PRIORITIES:
                    pipe.lrem(queue + priority, -1, receipt)
            await pipe.execute()

    async def put_back(
        self, client: Client, queue: str, message: Message, origin: Origin
    ) -> None:
        """What kombu does when a message is sent."""
        try:
            envelope = _unpack(origin.raw)
        except msgspec.MsgspecError as error:
            raise Refused(f"message {message.id} has lost its envelope") from error
        whole = message.body
        if not envelope.is_whole:
            whole = envelope.before + b64encode(message.body) + envelope.after
        if not 0 <= envelope.priority < len(_PRIORITIES):
            raise ConfigError(f"message {message.id} has a priority that is none")
        key = queue + _PRIORITIES[envelope.priority]
        async with client.pipeline(transaction=True) as pipe:
            pipe.lrem(key, 0, whole)
            pipe.lpush(key, whole)
            await pipe.execute()


def _found(queue: str, envelope: bytes, priority: int) -> Found:
    told = mapping(document(envelope))
    properties, headers = mapping(told.get("properties")), mapping(told.get("headers"))
    opened = _opened(told, envelope)
    if opened is None:
        body, slip = envelope, Envelope(b"", b"", priority, is_whole=True)
        about = {MALFORMED: "this is no message of Celery's"}
    else:
        body, slip = opened[0], Envelope(opened[1], opened[2], priority)
        about = {}
    return Found(
        kind="celery",
        place=f"celery:{queue}",
        source=queue,
        id=words(headers.get("id")) or _digest(envelope),
        body=body,
        headers=tuple((name, _as_bytes(value)) for name, value in headers.items()),
        about=about,
        content_type=words(told.get("content-type")) or None,
        reply_to=words(properties.get("reply_to")) or None,
        raw=_pack(slip),
        receipt=envelope,
    )


def _opened(told: dict[str, Any], envelope: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The body, and what is before and behind it; None when it is no envelope."""
    sealed = told.get("body")
    encoding = mapping(told.get("properties")).get("body_encoding")
    if not isinstance(sealed, str) or encoding != "base64":
        return None
    inside = sealed.encode("utf-8", "replace")
    try:
        body = b64decode(inside, validate=True)
    except NotBase64:
        return None
    before, found, after = envelope.partition(b'"' + inside + b'"')
    # It goes back byte for byte, or as a whole.
    if not found or b64encode(body) != inside or not inside:
        return None
    return body, before + b'"', b'"' + after


def _as_bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return msgspec.json.encode(value)


def _digest(envelope: bytes) -> str:
    return f"sha256-{sha256(envelope).hexdigest()[:32]}"
