"""
What a worker and the process that runs its handler say to each other.

Frames over a socket of their own: four bytes of length, then one value as msgpack.
Nothing else travels there, so a handler may print what it likes.
"""

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.decision import Decision
from deadletter.core.message import Delivery

from .held import Noted

Plain: TypeAlias = str | int | float | bool | None

LENGTH: Final = 4
LARGEST: Final = 256 * 1024 * 1024  # bytes of a frame


class Hello(Struct, frozen=True, tag="hello"):
    """Which handler to run, and within what."""

    target: str
    path: tuple[str, ...]  # where modules are looked for
    memory_limit: int | None


class Ask(Struct, frozen=True, tag="ask"):
    """Run the handler on this delivery."""

    delivery: Delivery
    wants_result: bool = False


class Ready(Struct, frozen=True, tag="ready"):
    """The handler is loaded."""


class Unfit(Struct, frozen=True, tag="unfit"):
    """The handler cannot be run as it was asked for; `text` says what to change."""

    text: str


class Beat(Struct, frozen=True, tag="beat"):
    """The handler says that it is getting on."""


class Done(Struct, frozen=True, tag="done"):
    """The handler has ended; what it returned, encoded, if somebody wants it."""

    body: bytes | None = None
    content_type: str | None = None


class Signalled(Struct, frozen=True, tag="signalled"):
    """The handler had a say in its own fate."""

    decision: Decision
    text: str


class Failed(Struct, frozen=True, tag="failed", kw_only=True):
    """The handler raised; all there is to know of it, as plain values."""

    names: tuple[str, ...]  # of its class and ancestors, with their modules
    text: str
    args: tuple[Plain, ...] | None = None  # when they are plain
    clues: dict[str, Plain] = {}  # code, status … as found on it
    cause: "Failed | None" = None
    stack: str = ""
    frame: str = ""


Request: TypeAlias = Hello | Ask
Answer: TypeAlias = Ready | Unfit | Beat | Noted | Done | Signalled | Failed

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_answers: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


def frame(value: Request | Answer) -> bytes:
    """A value as it goes over the wire; a ValueError if it is too large for it."""
    body = _encoder.encode(value)
    if len(body) > LARGEST:
        raise ValueError(f"{len(body)} bytes are more than can be passed on")
    return len(body).to_bytes(LENGTH, "big") + body


def read_request(body: bytes) -> Request:
    """What a worker asks."""
    return _requests.decode(body)


def read_answer(body: bytes) -> Answer:
    """What a handler's process answers."""
    return _answers.decode(body)


def length(head: bytes) -> int:
    """How long the value behind these bytes is; a ValueError if nobody sent that."""
    size = int.from_bytes(head, "big")
    if size > LARGEST:
        raise ValueError(f"a frame of {size} bytes is too long")
    return size
