"""
Headers of NATS messages, byte for byte.

Servers carry any bytes that a producer wrote. A line that clients would write differently
is kept, and goes back unchanged.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from deadletter.core.errors import Refused
from deadletter.core.message import Headers, Lineage, Message
from deadletter.intake.dialects import lineage_headers, origin_of, unmarked

from .connection import HeaderBlock

MSG_ID: Final = "Nats-Msg-Id"
_REPLAY_COUNT: Final = "dlq-replay-count"
_VERSION: Final = b"NATS/1.0"
_END: Final = b"\r\n"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # read by all clients
_OURS: Final = "dlq~"  # begins the deduplication id of a copy whose message had none


# Instructions of a producer to the server for one publish: not repeated.
_ASKED: Final = ("nats-expected-", "nats-rollup", "nats-batch-")


class MessageExtras(Struct, frozen=True, array_like=True):
    """Parts of a message beside its body and its headers as clients read them."""

    block: bytes = b""  # all headers, if clients would write them differently
    stream: str = ""  # of the consumer that gave up
    consumer: str = ""


pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(MessageExtras).decode


def slip_of(message: Message) -> MessageExtras:
    """Return what was kept of a message beside its body and headers."""
    origin = origin_of(message)
    try:
        return _unpack(origin.raw) if origin is not None else MessageExtras()
    except msgspec.MsgspecError:
        return MessageExtras()


def read_block(block: bytes) -> tuple[Headers, bytes]:
    """
    Return all headers of a block in order, and the block if it needs to be kept.

    A replayed copy gets back the deduplication id that its producer gave it.
    """
    pairs = [(name, value) for name, value, _ in _lines(block)]
    is_plain = _block(_line(name, value) for name, value in pairs) == block
    is_plain = is_plain and all(_TOKEN.fullmatch(name) for name, _ in pairs)
    count = dict(pairs).get(_REPLAY_COUNT, b"")
    headers = [
        (name, _first_id(value, count) if name == MSG_ID and count else value)
        for name, value in pairs
    ]
    shown = tuple(pair for pair in headers if pair != (MSG_ID, b""))
    return shown, b"" if is_plain else block


def block_of(message: Message) -> HeaderBlock | None:
    """Return the headers of a copy; raises Refused if NATS cannot carry them."""
    kept = {(name, value): line for name, value, line in _lines(slip_of(message).block)}
    headers = [pair for pair in unmarked(message).headers if not pair[0].lower().startswith(_ASKED)]
    if message.lineage is not None:
        headers = [*_renamed(headers, message.lineage), *lineage_headers(message.lineage)]
    lines = [kept.get(pair) or _checked(*pair) for pair in headers]
    return HeaderBlock(_block(lines)) if lines else None


def _renamed(headers: list[tuple[str, bytes]], lineage: Lineage) -> list[tuple[str, bytes]]:
    """
    Give a copy a deduplication id of its own, whether or not its message had one.

    It differs from the id of the message, so the server accepts the copy. It is always
    the same for one copy, so the server drops one that is sent again after a crash.
    """
    end = f"~{lineage.generation}".encode()
    if not any(name == MSG_ID for name, _ in headers):
        return [*headers, (MSG_ID, f"{_OURS}{lineage.letter_id}".encode() + end)]
    return [(name, value + end if name == MSG_ID else value) for name, value in headers]


def _first_id(value: bytes, count: bytes) -> bytes:
    first = value.removesuffix(b"~" + count)
    return b"" if first.startswith(_OURS.encode()) else first


def _lines(block: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield name, value and line of each header; other lines are skipped."""
    for line in block.split(_END)[1:]:
        name, colon, value = line.partition(b":")
        if colon and name.strip():
            text = name.strip().decode("utf-8", "backslashreplace")
            yield text, value.strip(), line


def _checked(name: str, value: bytes) -> bytes:
    if not _TOKEN.fullmatch(name) or set(value) & set(b"\r\n"):
        raise Refused(
            f"NATS does not take the header {name!a}: a name has no spaces, colons or"
            " letters beyond ASCII, and a value has no line breaks. Change it with"
            " `dlq edit`"
        )
    return _line(name, value)


def _line(name: str, value: bytes) -> bytes:
    return name.encode("utf-8", "surrogateescape") + b": " + value


def _block(lines: Iterable[bytes]) -> bytes:
    return _END.join((_VERSION, *lines, b"", b""))
