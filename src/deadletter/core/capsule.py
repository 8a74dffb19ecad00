"""A message in a file that people can read and change, for tests."""

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from .errors import ConfigError
from .message import Message
from .redact import MASK, is_secret_name, redact, redact_bytes


class Bytes(Struct, frozen=True):
    """What is no text."""

    base64: str


class Capsule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message and the mailbox it died in; bytes are text where they can be."""

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
    """The file's text."""
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
    """The mailbox and the message in a file."""
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
    except ValueError as error:  # of msgspec and of base64, too
        raise ConfigError(
            f"this is no message as `dlq repro` writes it: {error}"
        ) from (error)


def masked(message: Message) -> Message:
    """The message with what looks like a secret masked; all else as it was."""
    headers = tuple(
        (name, MASK.encode() if is_secret_name(name) else redact_bytes(value))
        for name, value in message.headers
    )
    return msgspec.structs.replace(
        message, body=_masked_body(message.body), headers=headers
    )


def _masked_body(body: bytes) -> bytes:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return redact_bytes(body)
    shown = _masked_value(value)
    if shown == value:
        return body  # every digit of it
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
        return 0  # the number of a card may be one in JSON, too
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
