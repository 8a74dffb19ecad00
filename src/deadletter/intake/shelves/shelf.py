"""What is the same on every shelf."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from deadletter.core.dialects import MALFORMED, Found, Origin
from deadletter.core.errors import Refused
from deadletter.core.message import Message

Client = Any  # redis.asyncio.Redis, with answers in bytes
_LONGEST: Final = 64 * 1024  # bytes that are unpacked of anything


class Shelf(Protocol):
    """How one framework keeps its dead, and how it wants them back."""

    pattern: str  # of the keys its shelves have; empty when they cannot be told

    def queue_of(self, key: str) -> str:
        """The queue that a key of that pattern belongs to."""

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
