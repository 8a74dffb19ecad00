"""
A message as a job of BullMQ: what a job has no place for goes into a field of its own.

Workers of BullMQ see the body as `job.data`, byte for byte as it was sent. A body that
is no JSON travels as `{"base64": "..."}`, and its envelope says so.
"""

from base64 import b64encode
from binascii import Error as NotBase64
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw, Struct, structs

from deadletter.core.message import Headers, Lineage, Message, Moment, escaped, restored


class Envelope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message without its body, and the form that has in the job."""

    id: str
    sent_at: Moment
    form: str = "json"
    headers: Headers = ()
    content_type: str | None = None
    key: str | None = None
    expires_at: Moment | None = None
    reply_to: str | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    lineage: Lineage | None = None


class _Wrapped(Struct):
    base64: bytes


_FIELDS: Final = tuple(name for name in Message.__struct_fields__ if name != "body")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Envelope).decode
_unwrap: Final = msgspec.json.Decoder(_Wrapped).decode
_look: Final = msgspec.json.Decoder(Raw).decode


def sealed(message: Message) -> tuple[bytes, bytes]:
    """The data and the envelope of a message."""
    is_json = _is_json(message.body)
    told = {name: getattr(message, name) for name in _FIELDS}
    envelope = Envelope(form="json" if is_json else "base64", **told)
    try:
        outside = _encode(envelope)
    except UnicodeEncodeError:
        return sealed(escaped(message))
    if is_json:
        return message.body, outside
    return b'{"base64":"%b"}' % b64encode(message.body), outside


def opened(envelope: bytes, data: bytes) -> Message | None:
    """The message that was sealed; None when this is no envelope of ours."""
    try:
        outside = _decode(envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    told = structs.asdict(outside)
    return restored(Message(body=_body(told.pop("form"), data), **told))


def sent_at(envelope: bytes) -> datetime | None:
    """Return when a message was sent; None when this is no envelope of ours."""
    message = opened(envelope, b"")
    return message.sent_at if message else None


def _body(form: str, data: bytes) -> bytes:
    if form == "json":
        return data
    try:
        return _unwrap(data).base64
    except (msgspec.MsgspecError, UnicodeDecodeError, NotBase64):
        return data  # a worker has changed it since


def _is_json(body: bytes) -> bool:
    try:
        body.decode()
        _look(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
