"""
AMQP 0-9-1 frames: what every message needs, written and read by hand.

The rare methods are left to pamqp. A message is three frames, and a library that
makes objects of each costs five times what the rest of the way does.
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

_BASIC: Final = 60  # the class of all methods that carry messages

A_HEARTBEAT: Final = bytes((HEARTBEAT, 0, 0, 0, 0, 0, 0, END))

prefix: Final = Layout(">BHI")  # kind, channel, size
_number: Final = Layout(">I")
_tagged: Final = Layout(">QB")
_ack: Final = Layout(">BHIIQBB")
_header: Final = Layout(">HHQ")


class Content(NamedTuple):
    """A message as it came, not yet read."""

    tag: int
    redelivered: bool
    properties: bytes
    body: bytes
    asked_for: bool  # one by one, not consumed: so it is a suspect


def ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    """Forget a delivery; with `multiple`, all before it as well."""
    return _ack.pack(METHOD, channel, 13, ACK, tag, multiple, END)


def confirmed(payload: bytes) -> tuple[int, bool]:
    """What an ack or nack of the broker is about: tag, and if all before it too."""
    tag, bits = _tagged.unpack_from(payload, 4)
    return tag, bool(bits & 1)


def method_of(payload: bytes) -> int:
    """Which method a payload is."""
    (method,) = _number.unpack_from(payload)
    return int(method)


def whole(payload: bytes, channel: int = 0) -> bytes:
    """A method's payload as the frame it came in."""
    return _frame(METHOD, channel, payload)


def delivered(payload: bytes) -> tuple[int, bool]:
    """Tag of a delivery, and whether it was delivered before."""
    tag, redelivered = _tagged.unpack_from(payload, 5 + payload[4])
    return tag, bool(redelivered)


def got(payload: bytes) -> tuple[int, bool]:
    """Tag of a message asked for, and whether it was delivered before."""
    tag, redelivered = _tagged.unpack_from(payload, 4)
    return tag, bool(redelivered)


def returned(payload: bytes) -> str:
    """The routing key that led nowhere."""
    at = 6  # method and reply code
    for _ in range(2):  # reply text, exchange
        at += 1 + payload[at]
    return payload[at + 1 : at + 1 + payload[at]].decode("utf-8", "replace")


def check_end(data: bytes, at: int) -> None:
    """Refuse what is no frame."""
    if data[at] != END:
        raise ValueError("no AMQP 0-9-1 frame")


def body_size(payload: bytes) -> int:
    """How many bytes of body follow a header."""
    class_id, _, size = _header.unpack_from(payload)
    if class_id != _BASIC:
        raise ValueError(f"header of class {class_id} instead of {_BASIC}")
    return int(size)


class Publishing:
    """How messages are written to one queue or routing key on one channel."""

    def __init__(
        self, channel: int, queue: str, frame_max: int, exchange: str = ""
    ) -> None:
        # Mandatory: what leads to no queue must come back instead of being dropped.
        way = _short(exchange) + _short(queue)
        args = b"\0\x3c\0\x28\0\0" + way + b"\x01"
        self._method = _frame(METHOD, channel, args)
        self._channel = channel
        self._room = frame_max - OVERHEAD

    def frames(self, properties: bytes, body: bytes) -> bytes:
        """A message, ready to be sent."""
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
    Frames that forget these deliveries, given all that are unacked, oldest first.

    What forms a beginning of them is one frame, the others one each.
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
