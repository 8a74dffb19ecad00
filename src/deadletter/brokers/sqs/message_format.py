"""
The format of a message on SQS.

A body that is text stays as it is, so that everybody can read it; other bytes travel as
base64. Everything else is packed into one binary attribute, `dlq`, with the counts and
the history of earlier attempts. These are signed for their queue, and ignored without a
valid signature. Messages of others have no such attribute and are read as they are.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from datetime import UTC, datetime
from hashlib import sha256
from re import compile as pattern
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from deadletter.core.errors import ConfigError
from deadletter.core.ids import body_digest
from deadletter.core.message import Headers, Message, Moment
from deadletter.core.packing import pack_extra, unpack_extra
from deadletter.core.signing import Keys, Part
from deadletter.core.topology import check_name

from .connection import Entry

# Message attributes of other senders are our headers. The header `sqs-attribute-types`
# stores their types: a message that is sent with it has attributes again.
TYPES: Final = "sqs-attribute-types"
_MOST: Final = 9  # SQS takes ten, and one is ours
_NAME: Final = pattern(r"(?!(?i:aws\.|amazon\.))[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_TYPE: Final = pattern(r"(String|Number|Binary)(\.[\x21-\x7e]{1,200})?")
_TEXT: Final = pattern("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
_types: Final = msgspec.json.Decoder(dict[str, str]).decode


def headers_of(attributes: dict[str, Any]) -> Headers:
    """Return message attributes as headers."""
    if not attributes:
        return ()
    headers = [(name, _value(attributes[name])) for name in sorted(attributes)]
    kinds = {name: str(attributes[name]["DataType"]) for name in sorted(attributes)}
    return (*headers, (TYPES, msgspec.json.encode(kinds)))


def native_attributes(message: Message) -> dict[str, Any]:
    """Return the headers that were attributes as attributes, without invalid ones."""
    given = dict(message.headers)
    if TYPES not in given:
        return {}
    try:
        kinds = _types(given[TYPES])
    except msgspec.MsgspecError:
        return {}
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        attribute = _attribute(kind, given.get(name, b""))
        if attribute is not None and _NAME.fullmatch(name) and len(name) <= 256:
            found[name] = attribute
        if len(found) == _MOST:
            break
    return found


def _attribute(kind: str, value: bytes) -> dict[str, Any] | None:
    if not value or not _TYPE.fullmatch(kind):
        return None
    if kind.startswith("Binary"):
        return {"DataType": kind, "BinaryValue": value}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return {"DataType": kind, "StringValue": text} if _TEXT.fullmatch(text) else None


def _value(attribute: dict[str, Any]) -> bytes:
    if "BinaryValue" in attribute:
        return bytes(attribute["BinaryValue"])
    return str(attribute.get("StringValue", "")).encode("utf-8", "surrogatepass")


ATTRIBUTE: Final = "dlq"  # the attribute
MOST_DELAY: Final = 900  # seconds that a message can be sent ahead of its time
_WIRE_TEXT: Final = pattern("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
_KEY: Final = pattern(r"[0-9a-f-]{36}")
_FIT: Final = pattern(r"[A-Za-z0-9!-/:-@\[-`{-~]{1,128}")
_PURPOSE: Final = "sqs attempts"


class Envelope(Struct, frozen=True, array_like=True, kw_only=True):
    """Everything of a message but its body, as it is stored."""

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
    """A message as SQS delivered it."""

    message: Message
    envelope: Envelope
    handle: str
    count: int  # how often this copy was received, this time included
    first_at: datetime
    id: str  # SQS's own
    source_arn: str | None = None  # the queue that SQS moved it from, if it did
    unsigned: bool = False  # it came with attempts that none of us has written


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Envelope).decode


def envelope_of(message: Message) -> Envelope:
    """Return the envelope of a new message."""
    return Envelope(
        id=encoded(message.id),
        sent_at=message.sent_at,
        expires_at=message.expires_at,
        extra=pack_extra(message),
    )


def entry_of(
    message: Message, envelope: Envelope, *, group: str | None, queue: str, keys: Keys
) -> Entry:
    """Return the entry to send; `group` is the default group in a FIFO queue."""
    text = _as_text(message.body) if not envelope.claim else envelope.claim
    form = "claim" if envelope.claim else "text"
    if text is None:
        text, form = wire_text(message.body), "base64"
    signature = ""
    if _tells(envelope):
        signature = keys.sign(_PURPOSE, *_signed(envelope, message.body, queue))
    packed = _pack(structs.replace(envelope, form=form, signature=signature))
    attributes = native_attributes(message)
    attributes[ATTRIBUTE] = {"DataType": "Binary", "BinaryValue": packed}
    entry: Entry = {"MessageBody": text, "MessageAttributes": attributes}
    if group is not None:
        entry["MessageGroupId"] = fit(message.key or group)
        entry["MessageDeduplicationId"] = fit(message.dedup_id)
    return entry


def size_of(entry: Entry) -> int:
    """Return the size of an entry, as SQS counts it."""
    size = len(entry["MessageBody"].encode())
    for name, attribute in entry["MessageAttributes"].items():
        value = attribute.get("BinaryValue")
        if value is None:
            value = attribute["StringValue"].encode()
        size += len(name.encode()) + len(attribute["DataType"]) + len(value)
    return size


def read(raw: dict[str, Any], queue: str, keys: Keys) -> Received:
    """Read a message received from a queue; a body stored elsewhere is not loaded."""
    about = raw.get("Attributes", {})
    sent_at = _moment(about.get("SentTimestamp", "0"))
    envelope = _envelope(raw)
    body = _body(raw["Body"], envelope.form) if envelope is not None else None
    if envelope is not None and body is not None:
        message = _message(envelope, body)
    else:
        message = Message(
            id=raw["MessageId"],
            body=raw["Body"].encode("utf-8", "surrogatepass"),
            sent_at=sent_at,
            headers=headers_of(raw.get("MessageAttributes", {})),
            key=about.get("MessageGroupId"),
        )
        envelope = envelope_of(message)
    arn = about.get("DeadLetterQueueSourceArn")
    # What SQS has moved here by itself was signed for the queue it lay in before.
    queues = (queue, *([] if arn is None else [arn.rpartition(":")[2]]))
    unsigned = _tells(envelope) and not any(
        keys.verifies(envelope.signature, _PURPOSE, *_signed(envelope, message.body, name))
        for name in queues
    )
    if unsigned:
        envelope = structs.replace(envelope, attempts=0, spared=0, first_at=None, history=b"")
    return Received(
        message=message,
        envelope=envelope,
        handle=raw["ReceiptHandle"],
        count=int(about.get("ApproximateReceiveCount", "1")),
        first_at=_moment(about.get("ApproximateFirstReceiveTimestamp", "0")),
        id=raw["MessageId"],
        source_arn=arn,
        unsigned=unsigned,
    )


def own_message(raw: dict[str, Any]) -> tuple[str, bytes, str] | None:
    """
    Return id, body and form of a message that we sent; None for messages of others.

    Bodies that are stored elsewhere are not known here: None for those as well.
    """
    envelope = _envelope(raw)
    if envelope is None or envelope.form == "claim":
        return None
    body = _body(raw["Body"], envelope.form)
    return None if body is None else (decoded(envelope.id), body, envelope.form)


def wire_text(body: bytes) -> str:
    """Return bytes that are not text in the form in which they travel."""
    return b64encode(body).decode() or "="  # SQS has no empty bodies


def name_in(url: str) -> str:
    """Return the name of the queue in a URL."""
    return url.rpartition("/")[2]


def fit(text: str) -> str:
    """Return the text as an id that SQS accepts: itself, or its digest."""
    return text if _FIT.fullmatch(text) else sha256(encoded(text)).hexdigest()


def encoded(text: str) -> bytes:
    """Return any text as bytes, also with lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """Return the text of bytes."""
    return data.decode("utf-8", "surrogatepass")


def _message(envelope: Envelope, body: bytes) -> Message:
    return Message(
        id=decoded(envelope.id),
        body=body,
        sent_at=envelope.sent_at,
        expires_at=envelope.expires_at,
        **structs.asdict(unpack_extra(envelope.extra)),
    )


def _tells(envelope: Envelope) -> bool:
    """Return whether an envelope has parts that must be signed."""
    return bool(envelope.attempts or envelope.spared or envelope.first_at or envelope.history)


def _signed(envelope: Envelope, body: bytes, queue: str) -> tuple[Part, ...]:
    first_at = "" if envelope.first_at is None else envelope.first_at.isoformat()
    counts = f"{envelope.attempts} {envelope.spared} {first_at}"
    return queue, envelope.id, body_digest(body), counts, envelope.history


def _as_text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if _WIRE_TEXT.fullmatch(text) else None


def _envelope(raw: dict[str, Any]) -> Envelope | None:
    attribute = raw.get("MessageAttributes", {}).get(ATTRIBUTE)
    if attribute is None or "BinaryValue" not in attribute:
        return None
    try:
        envelope = _unpack(attribute["BinaryValue"])
        decoded(envelope.id), decoded(envelope.history)
        if envelope.form == "claim" and not _KEY.fullmatch(envelope.claim):
            return None  # content is hostile: no path or key but our own is followed
        unpack_extra(envelope.extra)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # somebody else's attribute of that name
    return envelope


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


FIFO: Final = ".fifo"
_SUSPECTS: Final = "--suspects"
_LONGEST: Final = 80
_NAMES_FIT: Final = pattern(r"[A-Za-z0-9_-]+(\.fifo)?")


class QueueNames:
    """Names of queues with our prefix."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def check(self, mailbox: str) -> None:
        """Raise ConfigError for a name that no queue can have."""
        check_name(mailbox)
        room = _LONGEST - len(self.prefix) - len(_SUSPECTS)
        if not _NAMES_FIT.fullmatch(mailbox) or len(mailbox) > room:
            raise ConfigError(
                f"names of SQS queues must be up to {room} letters, digits, - and _, and end in"
                f" .fifo if the queue is FIFO, got {mailbox!a}"
            )
        if mailbox.endswith(_SUSPECTS):
            raise ConfigError(
                f"names that end in {_SUSPECTS} are reserved for suspects, got {mailbox!a}:"
                " choose another name"
            )

    def queue(self, mailbox: str) -> str:
        """Return the name of a mailbox's queue."""
        return self.prefix + mailbox

    def suspects(self, mailbox: str) -> str:
        """Return the name of the queue with a mailbox's suspects."""
        return self.prefix + mailbox + _SUSPECTS

    def mailbox(self, queue: str) -> str | None:
        """Return the mailbox of a queue; None if it is not ours, or holds suspects."""
        if not queue.startswith(self.prefix) or queue.endswith(_SUSPECTS):
            return None
        return queue.removeprefix(self.prefix)


def is_fifo(mailbox: str) -> bool:
    """Return whether a mailbox is a FIFO queue, by its name."""
    return mailbox.endswith(FIFO)
