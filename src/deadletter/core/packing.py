"""
Packing of the message and letter fields that have no column of their own.

Packed fields can hold any text, even lone surrogates from foreign brokers, and take little room
in common messages.
"""

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from .errors import ConfigError
from .ids import ID_LENGTH
from .letter import DeadLetter, LetterHead
from .message import Headers, Lineage, Message
from .redact import MASK, is_secret_name, redact, redact_bytes
from .text import stored

T = TypeVar("T")


class Extra(Struct, frozen=True, array_like=True):
    """Rare fields of a message, packed separately so that common messages stay small."""

    headers: Headers = ()
    content_type: str | None = None
    key: str | None = None
    reply_to: str | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    lineage: Lineage | None = None


class _Rest(Struct, frozen=True, array_like=True, gc=False):
    """The fields of a letter beside its head, history and body."""

    id: str
    sent_at: datetime
    headers: Headers
    content_type: str | None
    key: str | None
    expires_at: datetime | None
    reply_to: str | None
    idempotency_key: str | None
    traceparent: str | None
    tracestate: str | None
    lineage: Lineage | None
    position: str | None
    first_received_at: datetime | None
    route: str | None
    retry_wish: bool | None


UNREADABLE: Final = "dlq-unreadable"
"""The header that keeps packed fields that cannot be decoded."""

_ODD: Final = b"\xc1"  # never the first byte of msgpack
_NIL: Final = b"\xc0"
_SOME_ID: Final = "\x01" * ID_LENGTH
NOTHING_EXTRA: Final = Extra()
_pack: Final = msgspec.msgpack.Encoder().encode
_extra: Final = msgspec.msgpack.Decoder(Extra).decode
_rest: Final = msgspec.msgpack.Decoder(_Rest).decode


def pack_extra(message: Message) -> bytes | None:
    """Return a message's fields beside id, body and times; None if it has none."""
    if (
        message.headers
        or message.key is not None
        or message.reply_to is not None
        or message.idempotency_key is not None
        or message.traceparent is not None
        or message.tracestate is not None
        or message.lineage is not None
    ):
        return _packed(_extra_of(message, message.lineage))
    return _only_type(message.content_type)


def unpack_extra(packed: bytes | None) -> Extra:
    """Return what `pack_extra` packed."""
    if not packed:
        return NOTHING_EXTRA
    return _odd(packed, Extra) if packed.startswith(_ODD) else _extra(packed)


def read_extra(packed: bytes | None) -> tuple[Extra, str]:
    """
    Return the unpacked fields, and an error text if they cannot be decoded.

    Fields that cannot be decoded are kept in a header, so that one damaged message neither
    fails its batch nor gets lost.
    """
    try:
        return unpack_extra(packed), ""
    except (msgspec.MsgspecError, ValueError) as error:
        why = f"the fields stored beside its body cannot be read: {error}"
        return Extra(headers=((UNREADABLE, packed or b""),)), why


def pack_rest(letter: DeadLetter) -> bytes:
    """Return a letter's fields beside its head, history and body."""
    message = letter.message
    return _packed(
        _Rest(
            message.id,
            message.sent_at,
            message.headers,
            message.content_type,
            message.key,
            message.expires_at,
            message.reply_to,
            message.idempotency_key,
            message.traceparent,
            message.tracestate,
            message.lineage,
            letter.position,
            letter.first_received_at,
            letter.route,
            letter.retry_wish,
        )
    )


def letter_of(
    head: LetterHead, *, body: bytes, history: str, frame: str, rest: bytes
) -> DeadLetter:
    """Return the letter with these packed fields."""
    more = _unpacked(rest)
    return DeadLetter(
        head=head,
        message=_message(more, body),
        history=history,
        position=more.position,
        first_received_at=more.first_received_at,
        frame=frame,
        route=more.route,
        retry_wish=more.retry_wish,
    )


def unpack_message(rest: bytes, body: bytes) -> Message:
    """Return the message of a letter with these packed fields."""
    return _message(_unpacked(rest), body)


def sent_of(rest: bytes) -> tuple[datetime, str | None]:
    """Return when a letter's message was sent, and its position, from packed fields."""
    more = _unpacked(rest)
    return more.sent_at, more.position


def key_of(rest: bytes) -> str | None:
    """Return the key of a letter's message, from packed fields."""
    return _unpacked(rest).key


def copy_of(rest: bytes, lineage: Lineage) -> tuple[str, datetime, datetime | None, bytes]:
    """Return the id, sending time, expiry and packed fields of a copy of a letter's message."""
    more = _unpacked(rest)
    extra = _packed(_extra_of(more, lineage))
    return more.id, more.sent_at, more.expires_at, extra


def pack_outgoing(message: Message) -> bytes | None:
    """
    Return the packed fields of a copy up to its lineage.

    For stores that make copies in a statement: followed by a letter's id within
    `lineage_around`, it equals the result of `pack_extra`. Returns None for messages with odd
    text.
    """
    if stored(message.id) != message.id:
        return None
    packed = _packed(_extra_of(message, None))
    return None if packed.startswith(_ODD) else packed[: -len(_NIL)]


def lineage_around(campaign: str, generation: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the letter's id in a packed lineage."""
    lineage = Lineage(letter_id=_SOME_ID, generation=generation, campaign=campaign)
    before, _, after = _pack(lineage).partition(_SOME_ID.encode())
    return before, after


def _extra_of(message: Message | _Rest, lineage: Lineage | None) -> Extra:
    return Extra(
        message.headers,
        message.content_type,
        message.key,
        message.reply_to,
        message.idempotency_key,
        message.traceparent,
        message.tracestate,
        lineage,
    )


@lru_cache(maxsize=64)
def _only_type(content_type: str | None) -> bytes | None:
    return None if content_type is None else _packed(Extra((), content_type))


def _unpacked(rest: bytes) -> _Rest:
    return _odd(rest, _Rest) if rest.startswith(_ODD) else _rest(rest)


def _message(more: _Rest, body: bytes) -> Message:
    return Message(
        id=more.id,
        body=body,
        sent_at=more.sent_at,
        headers=more.headers,
        content_type=more.content_type,
        key=more.key,
        expires_at=more.expires_at,
        reply_to=more.reply_to,
        idempotency_key=more.idempotency_key,
        traceparent=more.traceparent,
        tracestate=more.tracestate,
        lineage=more.lineage,
    )


def _packed(value: Extra | _Rest) -> bytes:
    try:
        return _pack(value)
    except UnicodeEncodeError:  # lone surrogates, which msgpack rejects
        plain = msgspec.to_builtins(value, builtin_types=(bytes, datetime))
        return _ODD + _pack(_spelled(plain))


def _odd(packed: bytes, kind: type[T]) -> T:
    plain = msgspec.msgpack.decode(packed[1:], ext_hook=_read)
    return msgspec.convert(plain, kind)


def _spelled(value: Any) -> Any:
    match value:
        case str():
            return msgspec.msgpack.Ext(1, value.encode("utf-8", "surrogatepass"))
        case list() | tuple():
            return [_spelled(part) for part in value]
        case dict():
            return {name: _spelled(part) for name, part in value.items()}
    return value


def _read(_: int, data: memoryview) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")


# A message in a file that people can read and change, for tests.


class Bytes(Struct, frozen=True):
    """Bytes that are not text, in base64."""

    base64: str


class Capsule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message and the mailbox it died in; bytes are text where possible."""

    mailbox: str
    id: str
    body: str | Bytes
    content_type: str | None = None
    headers: tuple[tuple[str, str | Bytes], ...] = ()
    key: str | None = None
    idempotency_key: str | None = None
    reply_to: str | None = None
    sent_at: datetime | None = None


def written(mailbox: str, message: Message) -> str:
    """Return the text of the file."""
    capsule = Capsule(
        mailbox=mailbox,
        id=message.id,
        body=_shown(message.body),
        content_type=message.content_type,
        headers=tuple((name, _shown(value)) for name, value in message.headers),
        key=message.key,
        idempotency_key=message.idempotency_key,
        reply_to=message.reply_to,
        sent_at=message.sent_at,
    )
    fields = msgspec.to_builtins(capsule)
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


def read(text: str | bytes) -> tuple[str, Message]:
    """Return the mailbox and the message in a file."""
    try:
        capsule = msgspec.json.decode(text, type=Capsule)
        return capsule.mailbox, Message(
            id=capsule.id,
            body=_stored(capsule.body),
            sent_at=capsule.sent_at or datetime(1970, 1, 1, tzinfo=UTC),
            headers=tuple((name, _stored(value)) for name, value in capsule.headers),
            content_type=capsule.content_type,
            key=capsule.key,
            idempotency_key=capsule.idempotency_key,
            reply_to=capsule.reply_to,
        )
    except ValueError as error:  # also of base64
        raise ConfigError(f"not a message file of `dlq repro`: {error}") from error


def masked(message: Message) -> Message:
    """Return the message with everything that looks like a secret masked."""
    headers = tuple(
        (name, MASK.encode() if is_secret_name(name) else redact_bytes(value))
        for name, value in message.headers
    )
    return msgspec.structs.replace(message, body=_masked_body(message.body), headers=headers)


def _masked_body(body: bytes) -> bytes:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return redact_bytes(body)
    shown = _masked_value(value)
    if shown == value:
        return body  # unchanged, to the digit
    return json.dumps(shown, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _masked_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: MASK if is_secret_name(name) else _masked_value(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_masked_value(inner) for inner in value]
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, int | float) and redact(str(value)) != str(value):
        return 0  # a card number may be a JSON number
    return value


def _shown(data: bytes) -> str | Bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Bytes(b64encode(data).decode())


def _stored(shown: str | Bytes) -> bytes:
    if isinstance(shown, str):
        return shown.encode()
    return b64decode(shown.base64, validate=True)
