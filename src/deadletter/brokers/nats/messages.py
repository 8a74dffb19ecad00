"""
Messages in NATS, and back.

The payload is the body. Headers of the user are NATS headers if the protocol can carry
them; everything else is JSON in one header of ours. Messages of others have no such
header, and are read as they are.
"""

import re
from base64 import b64encode
from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from deadletter.core.errors import Refused
from deadletter.core.ids import checksum
from deadletter.core.message import Headers, Lineage, Message, Moment, escaped, restored
from deadletter.kit import when

from .connection import Sending
from .streams import MailboxNames

_OURS: Final = "dlq-message"
_DEDUP: Final = "Nats-Msg-Id"
_CRC: Final = "dlq-crc"
_ACK: Final = ("$JS", "ACK")  # how the subjects begin on which deliveries are settled
_NAME: Final = re.compile(r"(?!dlq-|nats-|status$|description$)[a-z0-9_-]+", re.IGNORECASE)
_VALUE: Final = re.compile(rb"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_LINE: Final = 4096  # bytes of protocol around a message
_MOST_HEADERS: Final = 64_000  # bytes; the server's limit is 64 KB, protocol included
_LONGEST_ID: Final = 512  # characters; the server remembers every one for a while


class _Rest(Struct, frozen=True, omit_defaults=True):
    """A message without its body and, usually, its headers."""

    id: str
    sent_at: Moment
    headers: Headers | None = None  # None: they travel as headers
    content_type: str | None = None
    key: str | None = None
    expires_at: Moment | None = None
    reply_to: str | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    lineage: Lineage | None = None
    due: Moment | None = None  # not to be received before


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Rest).decode


class Arrival(Struct, frozen=True):
    """A delivered message."""

    message: Message
    reply: str  # the subject to settle it; unique for each delivery
    seq: int  # in the stream
    count: int  # number of deliveries so far
    number: int  # of this delivery, as counted by the consumer
    position: str  # for people
    due: datetime | None = None
    corrupt: bool = False  # it does not match its checksum


def packed(message: Message, subject: str, *, due: datetime | None, largest: int) -> Sending:
    """Encode a message to publish."""
    plain = _travels(message.headers)
    rest = _Rest(
        id=message.id,
        sent_at=message.sent_at,
        headers=None if plain else message.headers,
        content_type=message.content_type,
        key=message.key,
        expires_at=message.expires_at,
        reply_to=message.reply_to,
        idempotency_key=message.idempotency_key,
        traceparent=message.traceparent,
        tracestate=message.tracestate,
        lineage=message.lineage,
        due=due,
    )
    try:
        told = _encode(rest)
        headers = {_DEDUP: _dedup_id(message), _OURS: told.decode()}
    except UnicodeEncodeError:
        return packed(escaped(message), subject, due=due, largest=largest)
    travelling = message.headers if plain else ()
    headers[_CRC] = f"{checksum(message.body, told, headers=travelling):08x}"
    if plain:
        headers |= {name: value.decode() for name, value in message.headers}
    around = sum(len(n) + len(v.encode()) + 4 for n, v in headers.items())
    if around > _MOST_HEADERS:
        raise Refused(
            f"message {message.id[:80]!a} has {around:,} bytes of headers and other"
            f" texts, but NATS accepts {_MOST_HEADERS:,}: send long text in the body"
        )
    size = len(message.body) + around
    if size + _LINE // 16 > largest:
        raise Refused(
            f"message {message.id!a} has {size:,} bytes with its headers, but the"
            f" server accepts {largest:,}: raise max_payload in its configuration, or"
            " store the content elsewhere and send its location"
        )
    return Sending(subject, message.body, headers)


def arrival(msg: Msg, place: MailboxNames) -> Arrival:
    """
    Decode a delivery of a mailbox.

    Raises ValueError if its reply subject is of another consumer: it could not be settled.
    """
    tokens = msg.reply.split(".")
    first = 4 if len(tokens) == 9 else 6  # with or without domain and account
    if (*tokens[:2], *tokens[first - 2 : first]) != (*_ACK, place.stream, place.durable):
        raise ValueError(f"a delivery of {msg.reply[:200]!a}")
    count, seq, stored = int(tokens[first]), int(tokens[first + 1]), tokens[first + 3]
    position = f"{place.stream}/{seq}"
    message, due = unpacked(msg.data, msg.headers, position, stored)
    number = int(tokens[first + 2])
    if _is_whole(msg.data, msg.headers):
        return Arrival(message, msg.reply, seq, count, number, position, due)
    # The due time may be corrupt as well: it is not used.
    return Arrival(message, msg.reply, seq, count, number, position, corrupt=True)


def are_in_order(arrivals: Iterable[Arrival]) -> bool:
    """
    Tell whether the numbers of deliveries of one consumer increase.

    Otherwise one was changed on the way, and we would settle another message.
    """
    last_number = last_seq = 0
    for one in arrivals:
        if one.number <= last_number:
            return False
        last_number = one.number
        if one.count == 1:  # others are out of order
            if one.seq <= last_seq:
                return False
            last_seq = one.seq
    return True


def _is_whole(body: bytes, headers: dict[str, str] | None) -> bool:
    """Tell whether a message matches its checksum, or has none."""
    if not headers or _CRC not in headers:
        return True
    told = headers.get(_OURS, "").encode("utf-8", "surrogatepass")
    crc = checksum(body, told, headers=_theirs(headers))
    return headers[_CRC] == f"{crc:08x}"


def unpacked(
    body: bytes, headers: dict[str, str] | None, position: str, stored: str | int
) -> tuple[Message, datetime | None]:
    """Decode a message and its due time; `stored` is the server's time, in ns."""
    headers = headers or {}
    ours = headers.get(_OURS)
    if ours is not None:
        try:
            rest = _decode(ours)
        except msgspec.MsgspecError:
            pass  # not our header: read like a message of others
        else:
            return restored(_ours(rest, body, headers)), rest.due
    sent_at = when(int(stored) // 1000)
    return Message(
        id=headers.get(_DEDUP) or position,
        body=body,
        sent_at=sent_at,
        headers=_theirs(headers),
        content_type=headers.get("Content-Type") or headers.get("content-type"),
        traceparent=headers.get("traceparent"),
        tracestate=headers.get("tracestate"),
    ), None


def _ours(rest: _Rest, body: bytes, headers: dict[str, str]) -> Message:
    return Message(
        id=rest.id,
        body=body,
        sent_at=rest.sent_at,
        headers=_theirs(headers) if rest.headers is None else rest.headers,
        content_type=rest.content_type,
        key=rest.key,
        expires_at=rest.expires_at,
        reply_to=rest.reply_to,
        idempotency_key=rest.idempotency_key,
        traceparent=rest.traceparent,
        tracestate=rest.tracestate,
        lineage=rest.lineage,
    )


def _theirs(headers: dict[str, str]) -> Headers:
    if len(headers) <= 3 and headers.keys() <= {_OURS, _DEDUP, _CRC}:
        return ()
    return tuple(
        (str(name), value.encode()) for name, value in headers.items() if _NAME.fullmatch(name)
    )


def _travels(headers: Headers) -> bool:
    """Tell whether NATS carries these headers unchanged."""
    if not headers:
        return True
    names = {name.lower() for name, _ in headers}
    return len(names) == len(headers) and all(
        _NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers
    )


def _dedup_id(message: Message) -> str:
    """
    Return the id by which the server drops duplicates.

    It includes a digest of the content: another message with the same id must not be
    dropped as a duplicate.
    """
    digest = blake2b(message.body, digest_size=12)
    for name, value in message.headers:
        digest.update(b"\0%d:%d:" % (len(name), len(value)))
        digest.update(name.encode() + value)
    said = b64encode(digest.digest(), b"-_").decode()
    name = quote(message.dedup_id, safe=":~")
    if len(name) > _LONGEST_ID:
        name = blake2b(name.encode(), digest_size=24).hexdigest()
    return f"{name}:{said}"
