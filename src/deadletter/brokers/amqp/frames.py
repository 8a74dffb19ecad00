"""
Frames of AMQP 0-9-1 that every message needs, written and read by hand.

Frame format: section 4.2.3; method payloads: 4.2.4; content header and body: 4.2.6;
heartbeats: 4.2.7. pamqp encodes and decodes the rare methods. A message is three frames;
a library that creates objects for each costs five times as much as the rest.
"""

from collections.abc import Iterable, Iterator
from struct import Struct as Layout
from typing import Final, NamedTuple

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE
OVERHEAD: Final = 8  # bytes of a frame around its payload

DELIVER: Final = 60 << 16 | 60
GET_OK: Final = 60 << 16 | 71
GET_EMPTY: Final = 60 << 16 | 72
RETURN: Final = 60 << 16 | 50
ACK: Final = 60 << 16 | 80
NACK: Final = 60 << 16 | 120
CLOSE_OK: Final = 20 << 16 | 41

_BASIC: Final = 60  # the class of all methods with content

A_HEARTBEAT: Final = bytes((HEARTBEAT, 0, 0, 0, 0, 0, 0, END))

prefix: Final = Layout(">BHI")  # kind, channel, size
_number: Final = Layout(">I")
_tagged: Final = Layout(">QB")
_ack: Final = Layout(">BHIIQBB")
_header: Final = Layout(">HHQ")


class Content(NamedTuple):
    """A received message, not decoded."""

    tag: int
    redelivered: bool
    properties: bytes
    body: bytes
    is_answer: bool  # to Basic.Get; otherwise it was delivered to a consumer


def ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    """Return the frame that acks a delivery; with `multiple`, all before it, too."""
    return _ack.pack(METHOD, channel, 13, ACK, tag, multiple, END)


def confirmed(payload: bytes) -> tuple[int, bool]:
    """Read a Basic.Ack or Basic.Nack of the broker: tag, and `multiple`."""
    tag, bits = _tagged.unpack_from(payload, 4)
    return tag, bool(bits & 1)


def method_of(payload: bytes) -> int:
    """Read class and method of a payload, as one number."""
    (method,) = _number.unpack_from(payload)
    return int(method)


def whole(payload: bytes, channel: int = 0) -> bytes:
    """Return the frame of a method's payload, for pamqp."""
    return _frame(METHOD, channel, payload)


def delivered(payload: bytes) -> tuple[int, bool]:
    """Read a Basic.Deliver: tag, and whether it was delivered before."""
    tag, redelivered = _tagged.unpack_from(payload, 5 + payload[4])
    return tag, bool(redelivered)


def got(payload: bytes) -> tuple[int, bool]:
    """Read a Basic.GetOk: tag, and whether it was delivered before."""
    tag, redelivered = _tagged.unpack_from(payload, 4)
    return tag, bool(redelivered)


def returned(payload: bytes) -> str:
    """Read a Basic.Return: the routing key that led to no queue."""
    at = 6  # method and reply code
    for _ in range(2):  # reply text, exchange
        at += 1 + payload[at]
    return payload[at + 1 : at + 1 + payload[at]].decode("utf-8", "replace")


def check_end(data: bytes, at: int) -> None:
    """Raise ValueError unless a frame ends here with its end octet (4.2.3)."""
    if data[at] != END:
        raise ValueError("a frame without its end octet")


def body_size(payload: bytes) -> int:
    """Read the size of the body from a content header (4.2.6.1)."""
    class_id, _, size = _header.unpack_from(payload)
    if class_id != _BASIC:
        raise ValueError(f"header of class {class_id} instead of {_BASIC}")
    return int(size)


class Publishing:
    """Basic.Publish to one queue or routing key on one channel."""

    def __init__(self, channel: int, queue: str, frame_max: int, exchange: str = "") -> None:
        # Mandatory: a message without a queue comes back instead of being dropped.
        way = _short(exchange) + _short(queue)
        args = b"\0\x3c\0\x28\0\0" + way + b"\x01"
        self._method = _frame(METHOD, channel, args)
        self._channel = channel
        self._room = frame_max - OVERHEAD

    def frames(self, properties: bytes, body: bytes) -> bytes:
        """Return the frames of a message; its body is split by frame_max (4.2.6.2)."""
        header = _header.pack(60, 0, len(body)) + properties
        if not body:
            return self._method + _frame(HEADER, self._channel, header)
        if len(body) <= self._room:
            return b"".join(
                (
                    self._method,
                    prefix.pack(HEADER, self._channel, len(header)),
                    header,
                    b"\xce",
                    prefix.pack(BODY, self._channel, len(body)),
                    body,
                    b"\xce",
                )
            )
        pieces = (
            _frame(BODY, self._channel, body[at : at + self._room])
            for at in range(0, len(body), self._room)
        )
        return self._method + _frame(HEADER, self._channel, header) + b"".join(pieces)


def acks(channel: int, tags: set[int], unacked: Iterable[int]) -> Iterator[bytes]:
    """
    Yield frames that ack these deliveries, given all unacked ones, oldest first.

    The oldest ones without a gap are one frame, the others one each.
    """
    last = 0
    count = 0
    for tag in unacked:
        if tag not in tags:
            break
        last = tag
        count += 1
    if count:
        yield ack(channel, last, multiple=True)
    if count < len(tags):
        for tag in sorted(tags):
            if tag > last:
                yield ack(channel, tag)


def _short(text: str) -> bytes:
    name = text.encode()
    return bytes((len(name),)) + name


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return prefix.pack(kind, channel, len(payload)) + payload + b"\xce"
