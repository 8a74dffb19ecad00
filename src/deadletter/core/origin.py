"""
The origin of a letter that was drained from elsewhere, and the lineage of its copies.

A header behind the producer's headers says where the letter was found. The header never leaves
the office: a copy is sent without it, with five headers that lead a consumer's failure back to
the letter. The last of them signs the others. Where there is little room for headers, they are
packed into one. None of them names a server: people and settings decide where a copy is sent.
"""

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, structs

from .failure import Reason, Trouble
from .message import Headers, Lineage, Message
from .signing import Keys, is_lineage_signed
from .text import encode_document

# Readers of untrusted header values: invalid values count as absent.

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_ATTEMPTS: Final = 1_000_000
_NUMBERS: Final = {4, 8}  # sizes of Java's numbers, in bytes


def number(text: str) -> int | None:
    """Return a decimal whole number, 0 or more; None if the text is not one."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    return int(text)


def big_endian(value: bytes) -> int | None:
    """Return a number as Java writes it, 0 or more; None if the bytes are not one."""
    if len(value) not in _NUMBERS:
        return None
    read = int.from_bytes(value, "big", signed=True)
    return read if read >= 0 else None


def count(text: str) -> int:
    """Return a number of attempts; 0 if the text is not a number."""
    return min(number(text) or 0, _MOST_ATTEMPTS)


def millis(since: int | None) -> datetime | None:
    """Return the time of a number of milliseconds since 1970."""
    if since is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=since)
    except OverflowError:
        return None


def moment(text: str) -> datetime | None:
    """Return a time in ISO 8601, or as .NET writes it (… 09:45:35:123456 Z)."""
    text = text.strip()[:40]
    if text.endswith(" Z") and text.count(":") == 3:
        text = ".".join(text[:-2].rsplit(":", 1)) + "Z"
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def stamp(time: datetime | None) -> str:
    """Return a time as text for people, in UTC; empty without one."""
    return "" if time is None else time.isoformat().replace("+00:00", "Z")


def document(data: bytes) -> Any:
    """Return a decoded JSON document; None if it is invalid."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def mapping(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def words(value: object) -> str:
    """Return the value as text if it is text or a whole number, else empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**18 else ""
    return ""


def named(found: tuple[tuple[str, bytes], ...], *prefixes: str) -> frozenset[str]:
    """Return the names of headers that begin with one of the prefixes."""
    return frozenset(name for name, _ in found if name.startswith(prefixes))


def last_line(stack: str) -> str:
    """Return the last line of a stack, where Python prints the error."""
    return stack.rstrip().rpartition("\n")[2].strip()


def raised(line: str) -> tuple[str, str]:
    """Return the type and the text of `Type: text`, as Python and Java print errors."""
    name, colon, text = line.partition(":")
    is_name = name.replace(".", "").replace("_", "").replace("$", "").isalnum()
    if not is_name or not (colon or line):
        return "", line
    return name, text.strip()


def shown(value: object) -> str:
    """Return a value of a JSON document as short text for people."""
    return msgspec.json.encode(value).decode("utf-8", "replace")


def digits(value: int | None) -> str:
    """Return a number as text; empty without one."""
    return "" if value is None else str(value)


# Messages found in dead places, and the facts that dialects read from them.
#
# A drain passes on a message as it was found. Dialects are pure functions from that to
# facts about the death.

Names: TypeAlias = frozenset[str]


class Found(Struct, frozen=True, kw_only=True):
    """
    A message as it was found in a dead place.

    `raw` is what else is needed to send the message back exactly as it was, and `receipt` what
    is needed to delete it. Only the drain that set them reads them.
    """

    kind: str  # of place: sqs, rabbitmq, kafka, nats, celery, dramatiq, rq, bullmq
    place: str  # the queue, topic or registry it lay in
    id: str  # its id in that place
    body: bytes
    headers: Headers = ()
    about: dict[str, str] = {}  # facts from the engine
    source: str = ""  # its mailbox, if the place names it
    at: datetime | None = None  # when it got there
    sent_at: datetime | None = None
    partition: str = ""
    position: str | None = None
    key: str | None = None
    content_type: str | None = None
    reply_to: str | None = None
    said: dict[str, str] = {}  # further facts from the place, for people
    raw: bytes = b""
    receipt: Any = None

    def text(self, name: str) -> str:
        """Return the last header of that name as text; empty if there is none."""
        return self.value(name).decode("utf-8", "replace")

    def value(self, name: str) -> bytes:
        """Return the last header of that name; empty if there is none."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return b""


class DeathReport(Struct, frozen=True, kw_only=True):
    """The facts that one dialect reports about a death; empty fields are not reported."""

    dialect: str
    source: str = ""
    partition: str = ""
    position: str = ""
    message_id: str = ""
    reason: Reason | None = None
    reason_text: str = ""
    trouble: Trouble | None = None  # None: the classifier decides
    code: str = ""  # beside the trouble
    error_type: str = ""
    error_text: str = ""
    stack: str = ""
    status: int = 0  # the response of an HTTP consumer
    attempts: int = 0  # 0: unknown
    first_failed_at: datetime | None = None
    dead_at: datetime | None = None
    sent_at: datetime | None = None
    expires_at: datetime | None = None  # when its framework refuses to run it
    consumer: str = ""
    task: str = ""  # letters of one task and one error are one group
    delivery: str = ""  # distinguishes deaths that have no time
    fields: dict[str, str] = {}  # further fields for people, by name
    retold: Names = frozenset()  # headers of the dialect that the fields repeat
    business_key: str = ""
    history: str = ""  # attempts of our own worker
    is_told_whole: bool = False  # the history ends with the death itself
    drops: Names = frozenset()  # headers of the dialect: not the producer's
    body: bytes | None = None  # of the message inside an envelope; None: there is no envelope


NAME: Final = "dlq-found"
REPLAY_OF: Final = "dlq-replay-of"
_COUNT: Final = "dlq-replay-count"
_CAMPAIGN: Final = "dlq-replay-campaign"
REPLAY_TO: Final = "dlq-replay-to"
_SIGNATURE: Final = "dlq-replay-signature"
PACKED: Final = "dlq-replay"
LINEAGE: Final = frozenset({REPLAY_OF, _COUNT, _CAMPAIGN, REPLAY_TO, _SIGNATURE, PACKED})
_SEPARATOR: Final = ";"  # no letter id, campaign or signature has one
_ID_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz234567")
_MOST_REPLAYS: Final = 10_000
_LONGEST_NAME: Final = 1_000  # characters of a mailbox


class Origin(Struct, frozen=True):
    """
    The place where a letter was found, and its data there.

    `said` holds fields of its dialects beyond those of the letter, for people. `headers` are
    the dialects' headers that `said` repeats in words. `claim` is the mailbox that unverified
    headers name. `server` is the one it was drained from: a name in the settings, or a URL
    without secrets. It is only compared with names in the settings.
    """

    kind: str
    place: str
    dialect: str = ""
    raw: bytes = b""
    said: dict[str, str] = {}
    claim: str = ""
    server: str = ""
    headers: dict[str, str] = {}


_NOWHERE: Final = Origin("", "")
_decode: Final = msgspec.json.Decoder(Origin).decode


def marked(message: Message, origin: Origin) -> Message:
    """Return the message with a header that says where it was found."""
    return structs.replace(message, headers=(*message.headers, (NAME, encode_document(origin))))


def fenced(message: Message) -> Message:
    """
    Return the message that a worker buries.

    If its producer wrote an origin header, this appends another one, which says that no drain
    has found the message.
    """
    if not message.headers or message.headers[-1][0] != NAME or message.lineage:
        return message
    return marked(message, _NOWHERE)


def origin_of(message: Message) -> Origin | None:
    """Return where a message was found; None if no drain has found it."""
    mark = _mark(message)
    return mark if mark is not None and mark.kind else None


def unmarked(message: Message) -> Message:
    """Return the message as its producer sent it."""
    if _mark(message) is None:
        return message
    return structs.replace(message, headers=message.headers[:-1])


def _mark(message: Message) -> Origin | None:
    if not message.headers or message.headers[-1][0] != NAME:
        return None
    try:
        return _decode(message.headers[-1][1])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def lineage_headers(lineage: Lineage | None) -> Headers:
    """Return the headers that lead a copy back to its letter."""
    if lineage is None:
        return ()
    return (
        (REPLAY_OF, lineage.letter_id.encode()),
        (_COUNT, str(lineage.generation).encode()),
        (_CAMPAIGN, lineage.campaign.encode()),
        (REPLAY_TO, lineage.mailbox.encode()),
        (_SIGNATURE, lineage.signature.encode()),
    )


def packed_lineage(lineage: Lineage, *, with_mailbox: bool = True) -> str:
    """
    Return a lineage as one text, for places with room for one header.

    Without the mailbox it has at most 128 characters, and the place itself must say which
    mailbox the copy was sent to.
    """
    return _SEPARATOR.join(
        (
            lineage.letter_id,
            str(lineage.generation),
            lineage.campaign,
            lineage.signature,
            lineage.mailbox if with_mailbox else "",
        )
    )


def unpacked_lineage(text: str) -> Lineage | None:
    """Read what `packed_lineage` wrote; verify its signature before trusting it."""
    parts = text.split(_SEPARATOR, 4)
    if len(parts) != 5:
        return None
    letter, count, campaign, signature, mailbox = (
        part.encode("utf-8", "replace") for part in parts
    )
    return _lineage(
        {
            REPLAY_OF: letter,
            _COUNT: count,
            _CAMPAIGN: campaign,
            REPLAY_TO: mailbox,
            _SIGNATURE: signature,
        }
    )


def lineage_of(headers: Headers) -> Lineage | None:
    """
    Return the lineage in a copy's headers.

    Verify its signature before trusting it, see `core.signing`.
    """
    told = {name: value for name, value in headers if name in LINEAGE}
    if PACKED in told and REPLAY_OF not in told:
        return unpacked_lineage(told[PACKED].decode("utf-8", "replace"))
    return _lineage(told)


def _lineage(told: dict[str, bytes]) -> Lineage | None:
    letter = told.get(REPLAY_OF, b"").decode("utf-8", "replace")
    generation = number(told.get(_COUNT, b"").decode("utf-8", "replace"))
    if len(letter) != 24 or not set(letter) <= _ID_LETTERS:
        return None
    if generation is None or not 1 <= generation <= _MOST_REPLAYS:
        return None
    campaign = told.get(_CAMPAIGN, b"").decode("utf-8", "replace")[:64]
    return Lineage(
        letter_id=letter,
        generation=generation,
        campaign=campaign,
        mailbox=told.get(REPLAY_TO, b"").decode("utf-8", "replace")[:_LONGEST_NAME],
        signature=told.get(_SIGNATURE, b"").decode("utf-8", "replace")[:100],
    )


# The mailbox that a message in a dead place belongs to.
#
# Anybody who can send to a dead queue can write any header there. A mailbox that only
# headers name is therefore a claim. It counts if the drain's settings allow it, if the
# dead queue is named after it, or if our signature proves it. Otherwise the message
# belongs to the place where it was found.

_WORDS: Final = re.compile(r"[^\W_]+|\$+")
# Words in names of dead queues beside the name of their mailbox.
_DEAD: Final = frozenset(
    {
        *("dlq", "dlt", "dlx", "dl", "dead", "deadletter", "deadletters", "letter"),
        *("letters", "deadletterqueue", "error", "errors", "failed", "failure"),
        *("failures", "poison", "skipped", "rejected", "rejects", "parking", "lot"),
        *("xq", "queue", "topic", "stream", "retry", "retries", "$"),
    }
)


class Trusted(Struct, frozen=True):
    """Mailboxes whose letters a drain takes in because headers name them."""

    patterns: tuple[str, ...] = ()  # `*` stands for any characters

    def allows(self, mailbox: str) -> bool:
        """Return whether a pattern allows this mailbox."""
        return any(fnmatchcase(mailbox, pattern) for pattern in self.patterns)


NOBODY: Final = Trusted()


def is_named_after(place: str, mailbox: str) -> bool:
    """
    Return whether a dead queue is named after this mailbox: `orders-dlq`, `orders`.

    Both names have the same words in the same order, apart from words that are common in names
    of dead queues.
    """
    wanted = _words(mailbox)
    return bool(wanted) and _words(place) == wanted


def is_dead_queue_of(place: str, mailbox: str) -> bool:
    """Return whether a place is named as the dead queue of this mailbox."""
    return is_named_after(place, mailbox) and _length(place) > _length(mailbox)


def is_lineage_believed(
    message: Message, place: str, keys: Keys, *, dead_queue_of: Collection[str] = ()
) -> bool:
    """
    Return whether a message found in this place is a replayed copy that we made.

    It was sent there, or to a mailbox whose dead queue this place is: by the mailbox's options
    (`dead_queue_of`) or by name. A copy in any other place proves nothing.
    """
    lineage = message.lineage
    if lineage is None:
        return False
    mailbox = lineage.mailbox or place
    return is_lineage_signed(message, mailbox, keys) and (
        mailbox == place or mailbox in dead_queue_of or is_dead_queue_of(place, mailbox)
    )


def _length(name: str) -> int:
    return len(_WORDS.findall(name))


def _words(name: str) -> Sequence[str]:
    return [word for word in _WORDS.findall(name.lower()) if word not in _DEAD]
