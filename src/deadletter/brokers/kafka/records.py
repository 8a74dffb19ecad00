"""
Messages as Kafka records, and back.

Headers of the user come first, unchanged. Ours follow, beginning with `dlq-message-id`,
in the order of `_OURS`: so they are recognised, whatever headers a producer uses. A
record without them was sent by others: its position is its id.

Headers about earlier attempts are signed for the topic they were written to. Without a
valid signature they count as headers of the user, and no attempt was made.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct, structs

from deadletter.core.ids import body_digest
from deadletter.core.message import Lineage, Message
from deadletter.core.signing import Keys, Part
from deadletter.kit import micros, when

RawHeaders: TypeAlias = list[tuple[str, bytes | None]]

_ID: Final = "dlq-message-id"
_SIGNATURE: Final = "dlq-attempt-signature"
_PURPOSE: Final = "kafka attempts"
_TEXTS: Final = {  # fields that are text
    "content-type": "content_type",
    "reply-to": "reply_to",
    "dlq-idempotency-key": "idempotency_key",
    "traceparent": "traceparent",
    "tracestate": "tracestate",
    "dlq-key": "key",
}
_PLAIN_TEXTS: Final = tuple(  # a key has its own place, mostly
    (name, field) for name, field in _TEXTS.items() if field != "key"
)
SPRING: Final = (  # a dead letter's, as Spring for Apache Kafka names them
    *("kafka_dlt-original-topic", "kafka_dlt-original-partition"),
    *("kafka_dlt-original-offset", "kafka_dlt-original-timestamp"),
    *("kafka_dlt-original-timestamp-type", "kafka_dlt-original-consumer-group"),
    *("kafka_dlt-exception-fqcn", "kafka_dlt-exception-message"),
    "kafka_dlt-exception-stacktrace",
)
_OURS: Final = {
    name: place
    for place, name in enumerate(
        (
            *(_ID, "dlq-sent-at", "dlq-expires-at", *_TEXTS, "dlq-lineage"),
            *("dlq-headers", "dlq-attempt", "dlq-spared", "dlq-suspect"),
            *("dlq-first-at", "dlq-due", "dlq-wait", "dlq-origin", "dlq-history"),
            _SIGNATURE,
            *SPRING,
        )
    )
}
_TRAIL: Final = (  # what a signature is about
    *("dlq-attempt", "dlq-spared", "dlq-suspect", "dlq-first-at", "dlq-due"),
    *("dlq-wait", "dlq-origin", "dlq-history"),
)
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack_headers: Final = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]]).decode


class Raw(Struct, frozen=True, kw_only=True):
    """A record as the client library has it."""

    key: bytes | None
    value: bytes | None
    headers: RawHeaders

    @property
    def size(self) -> int:
        """An upper estimate of its bytes."""
        taken = len(self.key or b"") + len(self.value or b"") + 100
        for name, value in self.headers:
            taken += 4 * len(name) + len(value or b"") + 10
        return taken


class Trail(Struct, frozen=True, kw_only=True):
    """Earlier attempts, as a record carries them."""

    attempts: int = 0
    spared: int = 0
    suspect: bool = False
    first_at: int | None = None  # microseconds, as are all times here
    due: int | None = None
    wait: int = 0  # the requested delay
    origin: tuple[str, int, int] | None = None  # topic, partition, offset
    history: str = ""
    unsigned: bool = False  # not signed: only `due` and `wait` are used


NEW: Final = Trail()


def to_record(message: Message) -> Raw:
    """Encode a message."""
    headers: RawHeaders = list(message.headers)
    odd = bool(headers) and not all(_is_plain(name) for name, _ in headers)
    if odd:
        packed = _pack([(_text(name), value) for name, value in message.headers])
        headers = []
    headers.append((_ID, _text(message.id)))
    headers.append(("dlq-sent-at", b"%d" % micros(message.sent_at)))
    if message.expires_at is not None:
        headers.append(("dlq-expires-at", b"%d" % micros(message.expires_at)))
    for name, field in _PLAIN_TEXTS:
        value = getattr(message, field)
        if value is not None:
            headers.append((name, _text(value)))
    key, plain = _key(message.key)
    if not plain:
        headers.append(("dlq-key", _text(message.key or "")))
    if message.lineage is not None:
        headers.append(("dlq-lineage", _json(message.lineage)))
    if odd:
        headers.append(("dlq-headers", packed))
    return Raw(key=key, value=message.body, headers=headers)


def with_trail(raw: Raw, trail: Trail, message: Message, *, topic: str, keys: Keys) -> Raw:
    """Return a record with a new trail, signed for a topic."""
    theirs, ours = _parted(raw.headers, unsigned=trail.unsigned)
    if not ours:  # sent by others: from now on it carries its id and time
        ours = {_ID: _text(message.id), "dlq-sent-at": b"%d" % micros(message.sent_at)}
    ours |= {"dlq-attempt": b"%d" % trail.attempts, "dlq-spared": b"%d" % trail.spared}
    ours["dlq-suspect"] = b"1" if trail.suspect else b"0"
    if trail.first_at is not None:
        ours["dlq-first-at"] = b"%d" % trail.first_at
    if trail.due is not None:
        ours["dlq-due"] = b"%d" % trail.due
        ours["dlq-wait"] = b"%d" % trail.wait
    if trail.origin is not None:
        where, partition, offset = trail.origin
        ours["dlq-origin"] = f"{where}/{partition}/{offset}".encode()
    ours["dlq-history"] = _text(trail.history)
    signature = keys.sign(_PURPOSE, *_signed(ours, raw.value, topic))
    ours[_SIGNATURE] = signature.encode()
    inserted = sorted(ours.items(), key=lambda pair: _OURS[pair[0]])
    return structs.replace(raw, headers=[*theirs, *inserted])


def from_record(  # noqa: PLR0917 -- a record's place, and the keys
    raw: Raw, topic: str, partition: int, offset: int, sent_ms: int, keys: Keys
) -> tuple[Message, Trail]:
    """Decode a record: its message, and its trail."""
    given = raw.headers
    if len(given) > 1 and given[-1][0] == "dlq-sent-at" and given[-2][0] == _ID:
        return _plain(raw, sent_ms), NEW
    theirs, ours = split(given)
    trail = _trail(ours) if "dlq-attempt" in ours else NEW
    # The due time is up to the producer, who may sign with the key of another office.
    due = Trail(due=trail.due, wait=trail.wait)
    if trail not in (NEW, due):
        signature = _str(ours.get(_SIGNATURE, b""))
        if not keys.verifies(signature, _PURPOSE, *_signed(ours, raw.value, topic)):
            trail = structs.replace(due, unsigned=True)
            theirs, ours = _parted(given, unsigned=True)
    headers = tuple([(name, value or b"") for name, value in theirs])
    if not ours:
        return _foreign(raw, headers, f"{topic}/{partition}/{offset}", sent_ms), trail
    if "dlq-headers" in ours:
        headers = _odd_headers(ours["dlq-headers"]) or headers
    sent_at = _number(ours.get("dlq-sent-at", b""))
    expires_at = _number(ours.get("dlq-expires-at", b""))
    texts = {field: _str(ours[name]) for name, field in _TEXTS.items() if name in ours}
    if "key" not in texts and raw.key is not None:
        texts["key"] = _key_str(raw.key)
    message = Message(
        id=_str(ours[_ID]),
        body=raw.value or b"",
        sent_at=_when(sent_at, sent_ms),
        headers=headers,
        expires_at=None if expires_at is None else _when(expires_at, sent_ms),
        lineage=_read_lineage(ours.get("dlq-lineage")),
        **texts,
    )
    return message, trail


def _plain(raw: Raw, sent_ms: int) -> Message:
    """Decode a record with only an id and a time of ours, as most have."""
    *theirs, (_, id_), (_, sent_at) = raw.headers
    return Message(
        id=_str(id_ or b""),
        body=raw.value or b"",
        sent_at=_when(_number(sent_at or b""), sent_ms),
        headers=tuple([(name, value or b"") for name, value in theirs]),
        key=None if raw.key is None else _key_str(raw.key),
    )


def split(headers: RawHeaders) -> tuple[RawHeaders, dict[str, bytes]]:
    """Split headers into those of the user and ours at the end, from our id on."""
    start = last = len(_OURS)
    place = len(headers)
    while place:
        name, value = headers[place - 1]
        start = _OURS.get(name, -1)
        if start < 0 or start >= last or value is None:
            break
        last = start
        place -= 1
        if start == 0:
            return headers[:place], dict(headers[place:])  # type: ignore[arg-type]
    return headers, {}


def _parted(headers: RawHeaders, *, unsigned: bool) -> tuple[RawHeaders, dict[str, bytes]]:
    """Split headers; an unsigned trail belongs to the user."""
    theirs, ours = split(headers)
    if unsigned:
        names = (*_TRAIL, _SIGNATURE)
        theirs = [*theirs, *((name, ours.pop(name)) for name in names if name in ours)]
    return theirs, ours


def _signed(ours: dict[str, bytes], body: bytes | None, topic: str) -> Iterator[Part]:
    yield from (topic, ours[_ID], body_digest(body or b""))
    for name in _TRAIL:
        if name in ours:
            yield from (name, ours[name])


def _foreign(raw: Raw, headers: tuple[tuple[str, bytes], ...], place: str, sent_ms: int) -> Message:
    known = dict(headers)
    return Message(
        id=place,
        body=raw.value or b"",
        sent_at=_when(None, sent_ms),
        headers=headers,
        key=None if raw.key is None else _key_str(raw.key),
        content_type=_maybe(known.get("content-type")),
        traceparent=_maybe(known.get("traceparent")),
        tracestate=_maybe(known.get("tracestate")),
    )


def _trail(ours: dict[str, bytes]) -> Trail:
    return Trail(
        attempts=_number(ours.get("dlq-attempt", b"")) or 0,
        spared=_number(ours.get("dlq-spared", b"")) or 0,
        suspect=ours.get("dlq-suspect") == b"1",
        first_at=_number(ours.get("dlq-first-at", b"")),
        due=_number(ours.get("dlq-due", b"")),
        wait=_number(ours.get("dlq-wait", b"")) or 0,
        origin=_origin(ours.get("dlq-origin", b"")),
        history=_str(ours.get("dlq-history", b"")),
    )


def _origin(told: bytes) -> tuple[str, int, int] | None:
    topic, _, rest = told.decode("utf-8", "replace").partition("/")
    partition, _, offset = rest.partition("/")
    if not (partition.isdecimal() and offset.isdecimal()):
        return None
    return topic, int(partition), int(offset)


def _is_plain(name: str) -> bool:
    # The client library ends a name at a NUL, and takes none that is not UTF-8.
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def _key(key: str | None) -> tuple[bytes | None, bool]:
    """Return the bytes of a key, and whether they restore it exactly."""
    if key is None:
        return None, True
    try:
        return key.encode(), True
    except UnicodeEncodeError:
        pass
    try:  # bytes that were not text when received
        told = key.encode("utf-8", "surrogateescape")
        return told, _key_str(told) == key
    except UnicodeEncodeError:
        return _text(key), False


def _key_str(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _str(told: bytes) -> str:
    try:
        return told.decode()
    except UnicodeDecodeError:
        pass
    try:
        return told.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return told.decode("utf-8", "replace")


def _maybe(told: bytes | None) -> str | None:
    return None if told is None else told.decode("utf-8", "replace")


def _number(told: bytes) -> int | None:
    digits = told[1:] if told[:1] == b"-" else told
    if not digits.isdigit() or len(told) > 20:
        return None
    return int(told)


def _when(us: int | None, ms: int) -> datetime:
    try:
        return when(ms * 1000 if us is None else us)
    except OverflowError:
        return when(ms * 1000)


def _json(lineage: Lineage) -> bytes:
    return json.dumps(structs.asdict(lineage)).encode()  # encodes any text


def _read_lineage(told: bytes | None) -> Lineage | None:
    if told is None:
        return None
    try:
        return msgspec.convert(json.loads(told), Lineage)
    except (ValueError, RecursionError):
        return None


def _odd_headers(told: bytes) -> tuple[tuple[str, bytes], ...] | None:
    try:
        pairs: Sequence[tuple[bytes, bytes]] = _unpack_headers(told)
        return tuple([(_str(name), value) for name, value in pairs])
    except msgspec.DecodeError:
        return None


_SPRING_TEXTS: Final = ("dlq-error-type", "dlq-error-message", "dlq-error-stack")


def with_spring(raw: Raw, message: Message, group: str) -> Raw:
    """
    Add the headers of Spring for Apache Kafka to the copy of a letter.

    They follow our headers, so reading the record removes them again.
    """
    position = (message.header("dlq-position") or "").split("/")
    if message.header("dlq-reason") is None or len(position) != 3:
        return raw
    topic, partition, offset = position
    if not (partition.isdecimal() and offset.isdecimal()):
        return raw
    sent_ms = max(0, micros(message.sent_at) // 1000)
    values = [
        topic.encode(),
        int(partition).to_bytes(4, "big"),
        int(offset).to_bytes(8, "big"),
        sent_ms.to_bytes(8, "big"),
        b"CreateTime",
        group.encode(),
        *((message.header(ours) or "").encode() for ours in _SPRING_TEXTS),
    ]
    spring: RawHeaders = list(zip(SPRING, values, strict=True))
    return structs.replace(raw, headers=[*raw.headers, *spring])
