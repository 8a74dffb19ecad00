"""Parts that all frameworks on Redis share."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from deadletter.core.errors import Refused
from deadletter.core.message import Message
from deadletter.core.replay_rules import CopyState
from deadletter.intake.dialects import MALFORMED, Found, Origin

Client = Any  # redis.asyncio.Redis, with answers in bytes
_LONGEST: Final = 64 * 1024  # bytes that are unpacked of anything
_REMEMBERED: Final = 7 * 86_400  # seconds that a copy is known as sent


class Framework(Protocol):
    """One framework: its failed jobs, and the way back to its queues."""

    pattern: str  # of the keys its frameworks have; empty when they cannot be told
    keeps_names: bool  # the server knows its queues even when they are empty

    def queue_of(self, key: str) -> str:
        """Return the queue of a key that matches the pattern."""

    async def queues(self, client: Client) -> set[str]:
        """Return all queues that the framework lists."""

    async def depth(self, client: Client, queue: str) -> int:
        """Return how many failed jobs a queue has."""

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """Return up to `limit` failed jobs that are not held, oldest first; receipts are bytes."""

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Remove failed jobs from their queue."""

    async def put_back(self, client: Client, queue: str, message: Message, origin: Origin) -> None:
        """Queue a job again; repeating the call changes nothing."""


@runtime_checkable
class Probe(Protocol):
    """A framework that reports the outcome of a copy."""

    async def state_of(
        self, client: Client, queue: str, message: Message, origin: Origin, since: datetime
    ) -> CopyState:
        """
        Return the state of a copy that was put back into this queue.

        `message` is the copy with its lineage, unsigned; it was not sent before
        `since`.
        """


class Job(Struct, frozen=True, array_like=True):
    """A job as it was found: its id and its fields, without those in the body."""

    id: bytes
    fields: dict[bytes, bytes] = {}


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Job).decode


def packed(id: bytes, fields: Mapping[bytes, bytes]) -> bytes:
    """Return a job as it is stored beside its body."""
    return _pack(Job(id, dict(fields)))


def job_of(message: Message, origin: Origin) -> Job:
    """Return the job as it was."""
    try:
        return _unpack(origin.raw)
    except msgspec.MsgspecError as error:
        raise Refused(
            f"message {message.id} has lost what its framework needs to run it"
        ) from error


async def is_sent(client: Client, key: str, message: Message) -> bool:
    """Return whether this copy was queued before, whether it was taken or not."""
    note = _note(key, message)
    return bool(note and await client.exists(note))


def note_sent(pipe: Client, key: str, message: Message) -> None:
    """Record, in the same transaction, that a copy is sent."""
    if note := _note(key, message):
        pipe.set(note, b"", ex=_REMEMBERED)


def _note(key: str, message: Message) -> str:
    lineage = message.lineage
    if lineage is None:
        return ""
    return f"{key}:dlq-sent:{lineage.letter_id}:{lineage.generation}"


def text(value: bytes) -> str:
    """Return bytes as text, with U+FFFD for invalid ones."""
    return value.decode("utf-8", "replace")


def inflated(value: bytes) -> str:
    """Return the first 64 KB of data packed with zlib; empty if it was not packed."""
    try:
        return text(zlib.decompressobj().decompress(value, _LONGEST))
    except zlib.error:
        return ""


def told(
    fields: Mapping[bytes, bytes], *, limit: int, without: Collection[bytes]
) -> dict[str, str]:
    """Return a job's fields as text, cut to a limit; a note says if the job is gone."""
    about = {
        text(name): text(value[:limit]) for name, value in fields.items() if name not in without
    }
    if b"data" not in fields:
        about[MALFORMED] = "its job is not there any more"
    return about


async def oldest(
    client: Client, key: str, limit: int, held: Collection[bytes]
) -> list[tuple[bytes, float]]:
    """Return the first members of a sorted set that are not held, with their scores."""
    found = await client.zrange(key, 0, limit + len(held) - 1, withscores=True)
    return [(member, score) for member, score in found if member not in held][:limit]
