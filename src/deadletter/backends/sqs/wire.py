"""
How a message looks on SQS.

The body stays as it is where SQS can carry it, so that everybody can read it; other
bytes travel as base64. All else is packed into one binary attribute, `dlq`, with the
counts and the story of earlier attempts, which are signed for the queue they were
written to: without a good signature there were no attempts. Messages of others have no
such attribute and are read as they are.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from datetime import UTC, datetime
from hashlib import sha256
from re import compile as pattern
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from deadletter.core.ids import body_digest
from deadletter.core.message import Message, Moment
from deadletter.core.packing import pack_extra, unpack_extra
from deadletter.core.signing import Keys, Part

from .attributes import headers_of, native_attributes
from .link import Entry

SLIP: Final = "dlq"  # the attribute
MOST_DELAY: Final = 900  # seconds that a message can be sent ahead of its time
_TEXT: Final = pattern("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
_KEY: Final = pattern(r"[0-9a-f-]{36}")
_FIT: Final = pattern(r"[A-Za-z0-9!-/:-@\[-`{-~]{1,128}")
_PURPOSE: Final = "sqs attempts"


class Slip(Struct, frozen=True, array_like=True, kw_only=True):
    """What we write on a message beside its body."""

    id: bytes
    sent_at: Moment
    expires_at: Moment | None = None
    extra: bytes | None = None
    form: str = "text"  # of the body: text, base64, or claim
    attempts: int = 0  # before this copy
    spared: int = 0
    first_at: Moment | None = None
    history: bytes = b""
    due: Moment | None = None  # when it is due later than SQS can wait
    claim: str = ""  # where the body is, when it was too large
    signature: str = ""  # on attempts, spared, first_at and history


class Received(Struct, frozen=True, kw_only=True):
    """A message as SQS handed it over."""

    message: Message
    slip: Slip
    handle: str
    count: int  # how often this copy was received, this time included
    first_at: datetime
    id: str  # SQS's own
    source_arn: str | None = None  # the queue that SQS moved it from, if it did
    unsigned: bool = False  # it came with attempts that none of us has written


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Slip).decode


def slip_of(message: Message) -> Slip:
    """The slip of a message that nobody has received yet."""
    return Slip(
        id=encoded(message.id),
        sent_at=message.sent_at,
        expires_at=message.expires_at,
        extra=pack_extra(message),
    )


def entry_of(
    message: Message, slip: Slip, *, group: str | None, queue: str, keys: Keys
) -> Entry:
    """What is sent; `group` is the group that a FIFO queue puts it in by default."""
    text = _as_text(message.body) if not slip.claim else slip.claim
    form = "claim" if slip.claim else "text"
    if text is None:
        text, form = b64encode(message.body).decode() or "=", "base64"
    signature = ""
    if _tells(slip):
        signature = keys.sign(_PURPOSE, *_signed(slip, message.body, queue))
    packed = _pack(structs.replace(slip, form=form, signature=signature))
    attributes = native_attributes(message)
    attributes[SLIP] = {"DataType": "Binary", "BinaryValue": packed}
    entry: Entry = {"MessageBody": text, "MessageAttributes": attributes}
    if group is not None:
        entry["MessageGroupId"] = fit(message.key or group)
        entry["MessageDeduplicationId"] = fit(message.dedup_id)
    return entry


def size_of(entry: Entry) -> int:
    """How much of SQS's limit an entry takes."""
    size = len(entry["MessageBody"].encode())
    for name, attribute in entry["MessageAttributes"].items():
        value = attribute.get("BinaryValue")
        if value is None:
            value = attribute["StringValue"].encode()
        size += len(name.encode()) + len(attribute["DataType"]) + len(value)
    return size


def read(raw: dict[str, Any], queue: str, keys: Keys) -> Received:
    """What was received from a queue; the body of a claim is still to be fetched."""
    about = raw.get("Attributes", {})
    sent_at = _moment(about.get("SentTimestamp", "0"))
    slip = _slip(raw)
    body = _body(raw["Body"], slip.form) if slip is not None else None
    if slip is not None and body is not None:
        message = _message(slip, body)
    else:
        message = Message(
            id=raw["MessageId"],
            body=raw["Body"].encode("utf-8", "surrogatepass"),
            sent_at=sent_at,
            headers=headers_of(raw.get("MessageAttributes", {})),
            key=about.get("MessageGroupId"),
        )
        slip = slip_of(message)
    arn = about.get("DeadLetterQueueSourceArn")
    # What SQS has moved here by itself was signed for the queue it lay in before.
    queues = (queue, *([] if arn is None else [arn.rpartition(":")[2]]))
    unsigned = _tells(slip) and not any(
        keys.verifies(slip.signature, _PURPOSE, *_signed(slip, message.body, name))
        for name in queues
    )
    if unsigned:
        slip = structs.replace(slip, attempts=0, spared=0, first_at=None, history=b"")
    return Received(
        message=message,
        slip=slip,
        handle=raw["ReceiptHandle"],
        count=int(about.get("ApproximateReceiveCount", "1")),
        first_at=_moment(about.get("ApproximateFirstReceiveTimestamp", "0")),
        id=raw["MessageId"],
        source_arn=arn,
        unsigned=unsigned,
    )


def name_in(url: str) -> str:
    """The name of the queue that a URL is of."""
    return url.rpartition("/")[2]


def fit(text: str) -> str:
    """The text as an id that SQS takes: itself, or its digest."""
    return text if _FIT.fullmatch(text) else sha256(encoded(text)).hexdigest()


def encoded(text: str) -> bytes:
    """Any text as bytes, also such that is none (lone surrogates)."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """The text of those bytes."""
    return data.decode("utf-8", "surrogatepass")


def _message(slip: Slip, body: bytes) -> Message:
    return Message(
        id=decoded(slip.id),
        body=body,
        sent_at=slip.sent_at,
        expires_at=slip.expires_at,
        **structs.asdict(unpack_extra(slip.extra)),
    )


def _tells(slip: Slip) -> bool:
    """Whether a slip has something on it that only we may say."""
    return bool(slip.attempts or slip.spared or slip.first_at or slip.history)


def _signed(slip: Slip, body: bytes, queue: str) -> tuple[Part, ...]:
    first_at = "" if slip.first_at is None else slip.first_at.isoformat()
    counts = f"{slip.attempts} {slip.spared} {first_at}"
    return queue, slip.id, body_digest(body), counts, slip.history


def _as_text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if _TEXT.fullmatch(text) else None


def _slip(raw: dict[str, Any]) -> Slip | None:
    attribute = raw.get("MessageAttributes", {}).get(SLIP)
    if attribute is None or "BinaryValue" not in attribute:
        return None
    try:
        slip = _unpack(attribute["BinaryValue"])
        decoded(slip.id), decoded(slip.history)
        if slip.form == "claim" and not _KEY.fullmatch(slip.claim):
            return None  # content is hostile: no path or key but our own is followed
        unpack_extra(slip.extra)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # somebody else's attribute of that name
    return slip


def _body(text: str, form: str) -> bytes | None:
    if form != "base64":
        return text.encode("utf-8", "surrogatepass")
    if text == "=":  # SQS has no empty bodies
        return b""
    try:
        return b64decode(text, validate=True)
    except NotBase64:
        return None


def _moment(millis: str) -> datetime:
    return datetime.fromtimestamp(int(millis) / 1000, UTC)
