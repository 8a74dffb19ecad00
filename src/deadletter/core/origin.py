"""
Where a letter was found, written on its message so that it can go back as it was.

It stands behind the producer's headers and never leaves the office: a copy goes
back without it, with five headers instead by which a consumer that fails again leads
back to the letter. The last of them signs the others. Where there is little room for
headers they are packed into one. None of them names a server: which one a copy is sent
to is for people and configuration to say.
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

# Values out of headers that anybody may have written: read, or not there.

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_ATTEMPTS: Final = 1_000_000
_NUMBERS: Final = {4, 8}  # bytes of the numbers that Java writes


def number(text: str) -> int | None:
    """A whole number, not negative, in decimal."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    return int(text)


def big_endian(value: bytes) -> int | None:
    """A number as Java writes it, not negative."""
    if len(value) not in _NUMBERS:
        return None
    read = int.from_bytes(value, "big", signed=True)
    return read if read >= 0 else None


def count(text: str) -> int:
    """Return how often something was tried; 0 when it is no count."""
    return min(number(text) or 0, _MOST_ATTEMPTS)


def millis(since: int | None) -> datetime | None:
    """A time in milliseconds since 1970."""
    if since is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=since)
    except OverflowError:
        return None


def moment(text: str) -> datetime | None:
    """A time as ISO 8601 has it, or as .NET writes it (… 09:45:35:123456 Z)."""
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
    """A JSON document; None when it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def mapping(value: object) -> dict[str, Any]:
    """The value if it is a JSON object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def words(value: object) -> str:
    """The value if it is text, or a number's digits; otherwise empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**18 else ""
    return ""


def named(found: tuple[tuple[str, bytes], ...], *prefixes: str) -> frozenset[str]:
    """The names among these headers that begin so."""
    return frozenset(name for name, _ in found if name.startswith(prefixes))


def last_line(stack: str) -> str:
    """The last line of a stack, where Python says what was raised."""
    return stack.rstrip().rpartition("\n")[2].strip()


def raised(line: str) -> tuple[str, str]:
    """The type and the text of `Type: text`, as Python and Java print them."""
    name, colon, text = line.partition(":")
    is_name = name.replace(".", "").replace("_", "").replace("$", "").isalnum()
    if not is_name or not (colon or line):
        return "", line
    return name, text.strip()


def shown(value: object) -> str:
    """A value of a JSON document, as short text for people."""
    return msgspec.json.encode(value).decode("utf-8", "replace")


def digits(value: int | None) -> str:
    """Return a number as text; empty without one."""
    return "" if value is None else str(value)


# What lay in a dead place, and what its dialect says of the death.
#
# Whoever drains a dead place hands over what it found as it was. Dialects are pure
# functions from that to what they can tell; nothing in it is believed beyond that.

Names: TypeAlias = frozenset[str]


class Found(Struct, frozen=True, kw_only=True):
    """
    A message in a dead place, as it lay there.

    `raw` is whatever is needed beside body and headers to send it back exactly as
    it was; `receipt` whatever is needed to forget it. Nobody else looks at either.
    """

    kind: str  # of place: sqs, rabbitmq, kafka, nats, celery, dramatiq, rq, bullmq
    place: str  # the queue, topic or registry it lay in
    id: str  # what it is called there
    body: bytes
    headers: Headers = ()
    about: dict[str, str] = {}  # what the engine says of it
    source: str = ""  # where it came from, when its place says so
    at: datetime | None = None  # when it got there
    sent_at: datetime | None = None
    partition: str = ""
    position: str | None = None
    key: str | None = None
    content_type: str | None = None
    reply_to: str | None = None
    said: dict[str, str] = {}  # what else its place says of it, for people
    raw: bytes = b""
    receipt: Any = None

    def text(self, name: str) -> str:
        """The last header of that name as text; empty when there is none."""
        return self.value(name).decode("utf-8", "replace")

    def value(self, name: str) -> bytes:
        """The last header of that name; empty when there is none."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return b""


class Told(Struct, frozen=True, kw_only=True):
    """The facts that one dialect reports about a death; empty fields are not reported."""

    dialect: str
    source: str = ""
    partition: str = ""
    position: str = ""
    message_id: str = ""
    reason: Reason | None = None
    reason_text: str = ""
    trouble: Trouble | None = None  # otherwise the classifier says
    error_type: str = ""
    error_text: str = ""
    stack: str = ""
    status: int = 0  # what an HTTP consumer answered
    attempts: int = 0  # 0: it does not say
    first_failed_at: datetime | None = None
    dead_at: datetime | None = None
    sent_at: datetime | None = None
    expires_at: datetime | None = None  # when its framework refuses to run it
    consumer: str = ""
    task: str = ""  # letters of one task and one error are one group
    delivery: str = ""  # tells this death from the next one, where no time does
    fields: dict[str, str] = {}  # what else people want to see, by its name
    retold: Names = frozenset()  # headers of the dialect that the fields repeat
    business_key: str = ""
    history: str = ""  # attempts that a worker of ours made, as it wrote them down
    is_told_whole: bool = False  # the history ends with the death itself
    drops: Names = frozenset()  # headers of the dialect: not the producer's


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
    The kind of place a letter was found in, its name there, and what else it had.

    `said` is what its dialects wrote beyond the fields of the letter, for people.
    `headers` are those of the dialects that `said` repeats in words, as they were.
    `claim` is the mailbox that its headers name, where nobody vouches for that.
    `server` is the one it was drained from: a name of the settings, or a URL without
    secrets. It is only ever compared with what settings name.
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
    """The message with a note on where it was found."""
    return structs.replace(message, headers=(*message.headers, (NAME, encode_document(origin))))


def fenced(message: Message) -> Message:
    """
    The message that a worker buries.

    Where its producer has written such a note, another one is put behind it, which
    says that no intake has found it.
    """
    if not message.headers or message.headers[-1][0] != NAME or message.lineage:
        return message
    return marked(message, _NOWHERE)


def origin_of(message: Message) -> Origin | None:
    """Return where a message was found; None when no intake has found it."""
    mark = _mark(message)
    return mark if mark is not None and mark.kind else None


def unmarked(message: Message) -> Message:
    """The message as its producer sent it."""
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
    """Return what goes with a copy so that it finds back to its letter."""
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
    Return what goes with a copy as one text, for places with room for one.

    Without the mailbox it has at most 128 characters, and the place has to say itself
    which mailbox the copy was sent to.
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
    """Read what `packed_lineage` wrote; it counts once its signature was verified."""
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
    The letter that a copy was made of, as its headers have it.

    It counts only once its signature was verified, see `core.signing`.
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


# Which mailbox a message in a dead place belongs to.
#
# Whoever can send to a dead queue can write every header that a broker or framework
# would write there. A mailbox that only headers name is therefore a claim. It counts if
# whoever drains allows it, if the dead queue is named after it, or if a signature of
# ours proves it. What else claims to belong somewhere belongs to the place where it was
# found.

_WORDS: Final = re.compile(r"[^\W_]+|\$+")
# What dead queues are called beside the name of their mailbox.
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
        """Tell whether somebody has allowed this mailbox."""
        return any(fnmatchcase(mailbox, pattern) for pattern in self.patterns)


NOBODY: Final = Trusted()


def is_named_after(place: str, mailbox: str) -> bool:
    """
    Tell whether a dead queue is named after this mailbox: `orders-dlq`, `orders`.

    The words of both are the same, in the same order, but for such as every dead
    queue has in its name.
    """
    wanted = _words(mailbox)
    return bool(wanted) and _words(place) == wanted


def is_dead_queue_of(place: str, mailbox: str) -> bool:
    """Tell whether a place is named after this mailbox, and as its dead queue."""
    return is_named_after(place, mailbox) and _length(place) > _length(mailbox)


def is_lineage_believed(
    message: Message, place: str, keys: Keys, *, dead_queue_of: Collection[str] = ()
) -> bool:
    """
    Tell whether a message found in this place is a replayed copy that one of us made.

    It was sent there, or to a mailbox whose dead queue this place is: by the options
    of that mailbox, `dead_queue_of`, or by its name. A copy that was put anywhere else
    proves nothing.
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
