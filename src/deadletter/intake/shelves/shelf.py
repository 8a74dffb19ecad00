"""What is the same on every shelf."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from deadletter.core.dialects import MALFORMED, Found, Origin
from deadletter.core.errors import Refused
from deadletter.core.message import Message
from deadletter.core.replaying import CopyState

Client = Any  # redis.asyncio.Redis, with answers in bytes
_LONGEST: Final = 64 * 1024  # bytes that are unpacked of anything
_REMEMBERED: Final = 7 * 86_400  # seconds that a copy is known as sent


class Shelf(Protocol):
    """How one framework keeps its dead, and how it wants them back."""

    pattern: str  # of the keys its shelves have; empty when they cannot be told
    keeps_names: bool  # the server knows its queues even when they are empty

    def queue_of(self, key: str) -> str:
        """The queue that a key of that pattern belongs to."""

    async def queues(self, client: Client) -> set[str]:
        """The queues that can be known, dead or alive."""

    async def depth(self, client: Client, queue: str) -> int:
        """How many lie there."""

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """Up to `limit` that are not held, oldest first; the receipt is bytes."""

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Take them off the shelf."""

    async def put_back(
        self, client: Client, queue: str, message: Message, origin: Origin
    ) -> None:
        """Give one to its workers again; doing it twice is doing it once."""


@runtime_checkable
class Probe(Protocol):
    """A shelf of a framework that says what became of a copy."""

    async def state_of(
        self,
        client: Client,
        queue: str,
        message: Message,
        origin: Origin,
        since: datetime,
    ) -> CopyState:
        """
        Return the state of a copy that was put back into this queue.

        `message` is the copy with its lineage, unsigned; it was not sent before
        `since`.
        """


class Job(Struct, frozen=True, array_like=True):
    """A job as it lay there: its id and its fields, without those in the body."""

    id: bytes
    fields: dict[bytes, bytes] = {}


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Job).decode


def packed(id: bytes, fields: Mapping[bytes, bytes]) -> bytes:
    """A job as it is kept beside its body."""
    return _pack(Job(id, dict(fields)))


def job_of(message: Message, origin: Origin) -> Job:
    """The job as it was."""
    try:
        return _unpack(origin.raw)
    except msgspec.MsgspecError as error:
        raise Refused(
            f"message {message.id} has lost what its framework needs to run it"
        ) from error


async def is_sent(client: Client, key: str, message: Message) -> bool:
    """Tell whether this very copy was put into a queue already, taken or not."""
    note = _note(key, message)
    return bool(note and await client.exists(note))


def note_sent(pipe: Client, key: str, message: Message) -> None:
    """Write down, with the sending itself, that a copy is sent."""
    if note := _note(key, message):
        pipe.set(note, b"", ex=_REMEMBERED)


def _note(key: str, message: Message) -> str:
    lineage = message.lineage
    if lineage is None:
        return ""
    return f"{key}:dlq-sent:{lineage.letter_id}:{lineage.generation}"


def text(value: bytes) -> str:
    """Bytes of others as text, odd ones shown as U+FFFD."""
    return value.decode("utf-8", "replace")


def inflated(value: bytes) -> str:
    """What was packed with zlib, the first 64 KB of it; empty when it was not."""
    try:
        return text(zlib.decompressobj().decompress(value, _LONGEST))
    except zlib.error:
        return ""


def told(
    fields: Mapping[bytes, bytes], *, limit: int, without: Collection[bytes]
) -> dict[str, str]:
    """A job's fields as text, so many bytes of each; it says if the job is gone."""
    about = {
        text(name): text(value[:limit])
        for name, value in fields.items()
        if name not in without
    }
    if b"data" not in fields:
        about[MALFORMED] = "its job is not there any more"
    return about


async def oldest(
    client: Client, key: str, limit: int, held: Collection[bytes]
) -> list[tuple[bytes, float]]:
    """The first members of a sorted set that are not held, with their scores."""
    found = await client.zrange(key, 0, limit + len(held) - 1, withscores=True)
    return [(member, score) for member, score in found if member not in held][:limit]
