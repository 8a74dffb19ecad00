"""Messages, deliveries and replies."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from .errors import ConfigError
from .failure import Bury, Decision, Fail, Failure
from .text import shown, stored

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""A time with a zone; times without one cannot be compared."""

_TEXTS: Final = (
    *("id", "content_type", "key", "reply_to", "idempotency_key"),
    *("traceparent", "tracestate"),
)
LONGEST_TEXT: Final = 8 * 1024  # bytes of each of these, and of a header's name
RESERVED: Final = "dlq-"
"""The prefix of our own headers; users cannot send headers with this prefix."""

LONGEST: Final = 36_500 * 86_400.0  # seconds; the longest delay


MAX_ATTEMPTS: Final = "dlq-max-attempts"
"""The header that carries a message's own limit of attempts."""

MOST_ATTEMPTS: Final = 1000  # the highest limit of a message


class Lineage(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The letter and generation that a replayed copy was made from."""

    letter_id: str
    generation: int  # 1 for the first replay; part of every dedup id
    campaign: str
    mailbox: str = ""  # the target, on engines where others could have written this
    signature: str = ""  # over the lineage and the body, see `core.signing`


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """
    A message as its producer sent it.

    The body is bytes we store, show and resend but never interpret. Headers
    keep their order, their duplicates and their bytes.
    """

    id: str
    body: bytes
    sent_at: Moment
    headers: Headers = ()
    content_type: str | None = None
    key: str | None = None
    expires_at: Moment | None = None
    reply_to: str | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    lineage: Lineage | None = None

    def header(self, name: str) -> str | None:
        """Return the last header of that name as text, with invalid bytes as U+FFFD."""
        for key, value in reversed(self.headers):
            if key == name:
                return value.decode("utf-8", "replace")
        return None

    @property
    def generation(self) -> int:
        """Return how often this message has been replayed."""
        return self.lineage.generation if self.lineage else 0

    @property
    def dedup_id(self) -> str:
        """
        The id by which a broker may deduplicate.

        It differs between a replayed copy and its original: otherwise SQS FIFO and JetStream
        would drop the copy and report success.
        """
        return f"{self.id}~{self.generation}" if self.lineage else self.id


class BrokerMove(Struct, frozen=True, kw_only=True):
    """A move to a dead queue that a broker made by itself, after too many deliveries."""

    source: str  # the mailbox that the message was in
    receives: int = 0  # that the broker allowed there; 0: unknown


class Delivery(Struct, frozen=True, kw_only=True):
    """
    One delivery of a message to a worker.

    Only the driver that made the receipt reads it.
    `history` holds the earlier attempts as JSON lines (see `core.attempts`).
    """

    message: Message
    mailbox: str
    attempt: int = 1  # counts from 1, durably, at claim time; never shrinks
    spared: int = 0  # attempts among these that are not charged
    suspect: bool = False  # a worker died holding it: run it alone
    partition: str = ""
    position: str | None = None  # offset, stream sequence … for people
    first_received_at: datetime | None = None
    history: str = ""
    receipt: Any = None
    unreadable: str = ""  # why the message cannot be decoded; the stored bytes are kept
    corrupt: bool = False  # ...because it does not match its checksum
    unsigned: bool = False  # its attempts are not covered by a valid signature
    moved: BrokerMove | None = None  # how its broker brought it into this dead queue
    moves_to: str = ""  # the dead queue that its broker moves it to if it is released

    @property
    def charged(self) -> int:
        """Return how many attempts count against the limit, this one included."""
        return self.attempt - self.spared


def attempt_limit(message: Message) -> int | None:
    """
    Return the attempt limit in a message's header; None: the policy decides.

    Anybody may have written the header, so a value out of range is ignored.
    """
    if not message.headers or (text := message.header(MAX_ATTEMPTS)) is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_ATTEMPTS))):
        return None
    limit = int(text)
    return limit if 1 <= limit <= MOST_ATTEMPTS else None


def has_invalid_limit(message: Message) -> bool:
    """Return whether a message came with a limit of attempts that is ignored."""
    return attempt_limit(message) is None and message.header(MAX_ATTEMPTS) is not None


def limit_header(max_attempts: object) -> Headers:
    """Return the header for a message's own limit of attempts; nothing for None."""
    if max_attempts is None:
        return ()
    if (
        not isinstance(max_attempts, int)
        or isinstance(max_attempts, bool)
        or not 1 <= max_attempts <= MOST_ATTEMPTS
    ):
        raise ConfigError(
            f"max_attempts of a message must be a whole number from 1 to {MOST_ATTEMPTS}, got"
            f" {max_attempts!a}: leave it out to use the policy of the handler."
        )
    return ((MAX_ATTEMPTS, b"%d" % max_attempts),)


def as_headers(
    given: Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]] | None,
) -> Headers:
    """Return headers as pairs of a name and bytes."""
    if not given:
        return ()
    pairs = given.items() if isinstance(given, Mapping) else given
    try:
        return tuple((_as_name(name), _as_bytes(name, value)) for name, value in pairs)
    except (TypeError, ValueError) as error:  # no pairs
        raise ConfigError(
            f'Headers are of type {type(given).__name__}: give a dict such as {{"tenant": "eu"}}.'
        ) from error


def sendable_headers(
    given: Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]] | None,
) -> Headers:
    """Return headers of an application; reject names that are reserved."""
    headers = as_headers(given)
    for name, _ in headers:
        if name[: len(RESERVED)].lower() == RESERVED:
            raise ConfigError(
                f"The header name {name[:100]!a} begins with {RESERVED}, which is"
                " reserved for headers of deadletter itself: use another name."
            )
    return headers


def checked(message: Message) -> Message:
    """
    Return a message of an application; reject texts that are invalid or too long.

    Some engines would accept a number as a key, but no worker could decode that message
    or others of its batch. Lone surrogates and very long texts are rejected here as
    well, because the sender can still correct them.
    """
    for name in _TEXTS:
        value = getattr(message, name)
        if value is not None and not (
            isinstance(value, str) and value.isascii() and len(value) <= LONGEST_TEXT
        ):
            _check_text(name, value)
    for name, _ in message.headers:
        if not name.isascii() or len(name) > LONGEST_TEXT:
            _check_text("header name", name)
    return message


def as_seconds(name: str, seconds: object) -> float:
    """Return a delay in seconds; reject delays beyond the longest one."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, int | float) and seconds <= LONGEST:
        return seconds
    raise ConfigError(
        f"{name} must be a number of seconds, at most {LONGEST:,.0f}, or a timedelta, "
        f"got {seconds!a}."
    )


def _check_text(name: str, value: object) -> None:
    told = f"{name}={_shortened(value)} of a message"
    if not isinstance(value, str):
        raise ConfigError(f"{told} is of type {type(value).__name__}: give text.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{told} is not Unicode: character {error.start + 1} is half a surrogate"
            " pair. Give text; other bytes belong into the body or the value of a"
            " header."
        ) from error
    if size > LONGEST_TEXT:
        raise ConfigError(
            f"{told} has {size:,} bytes: up to {LONGEST_TEXT:,} are allowed. Longer"
            " text belongs into the body or the value of a header."
        )


def _shortened(value: object) -> str:
    told = ascii(value)
    return told if len(told) <= 80 else f"{told[:80]}..."


def _as_name(name: object) -> str:
    if isinstance(name, str):
        return name
    kind = type(name).__name__
    raise ConfigError(f"The header name {name!a} is of type {kind}: give text.")


def _as_bytes(name: str, value: object) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"Header {name!a} is not Unicode: {error.reason}; give it as bytes."
            ) from error
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    # bytes(3) would quietly be three zeros.
    kind = type(value).__name__
    raise ConfigError(f"Header {name!r} is of type {kind}: give text or bytes.")


# Messages with odd text, for engines that carry Unicode only.
#
# Applications cannot send lone surrogates, but letters of foreign brokers may hold
# them, and are replayed like any other. Their texts travel escaped, marked by a header
# that is gone when they are received.

ESCAPED: Final = "dlq-escaped"


def escaped(message: Message) -> Message:
    """Return the message with every text escaped, and marked so."""
    changed = _changed(message, stored)
    return replace(changed, headers=(*changed.headers, (ESCAPED, b"1")))


def as_unicode(message: Message) -> Message:
    """Return the message as it is if all its texts are Unicode, else escaped."""
    texts = (
        *(message.id, message.content_type, message.key, message.reply_to),
        *(message.idempotency_key, message.traceparent, message.tracestate),
        *(name for name, _ in message.headers),
    )
    try:
        "".join(text for text in texts if text).encode()
    except UnicodeEncodeError:
        return escaped(message)
    return message


def restored(message: Message) -> Message:
    """Return the message as it was, if it is one that was escaped."""
    headers = message.headers
    if not headers or headers[-1][0] != ESCAPED:
        return message
    return _changed(replace(message, headers=headers[:-1]), shown)


def _changed(message: Message, change: Callable[[Any], Any]) -> Message:
    """Return the message with `change` applied to each of its texts."""
    lineage = message.lineage
    return replace(
        message,
        id=change(message.id),
        headers=tuple((change(name), value) for name, value in message.headers),
        content_type=change(message.content_type),
        key=change(message.key),
        reply_to=change(message.reply_to),
        idempotency_key=change(message.idempotency_key),
        traceparent=change(message.traceparent),
        tracestate=change(message.tracestate),
        lineage=lineage
        and replace(
            lineage, letter_id=change(lineage.letter_id), campaign=change(lineage.campaign)
        ),
    )


# Traces, as far as they travel with messages and errors: W3C trace context.
#
# An error may be marked with the span it was raised in. The mark becomes part of its
# `Failure`, of the attempt in the letter's story and of log lines, so that a replay
# can point back at what failed.

_PARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
    r"(?:-.{0,200})?",
    re.ASCII,
)
_attributes: Final = BaseException.__dict__["__dict__"].__get__
_MARK: Final = "dlq_trace"


class SpanId(Struct, frozen=True):
    """One span of one trace."""

    trace_id: str
    span_id: str
    flags: str = "00"


def span_of(traceparent: str | None) -> SpanId | None:
    """Return the span that a W3C `traceparent` names; None if it is invalid."""
    found = _PARENT.fullmatch(traceparent or "")
    return SpanId(*found.groups()) if found else None


def trace_id(traceparent: str | None) -> str | None:
    """Return the trace that a W3C `traceparent` names; None if it is invalid."""
    span = span_of(traceparent)
    return span.trace_id if span else None


def mark(error: BaseException, traceparent: str) -> None:
    """Mark an error with the span in which it was raised, if the error allows it."""
    with suppress(Exception):
        _attributes(error)[_MARK] = traceparent


def marked(error: BaseException) -> str:
    """Return the span in which an error was raised; empty if it is unknown."""
    told = _attributes(error).get(_MARK)
    return told if type(told) is str and span_of(told) else ""


# Replies to senders that asked for one.

IN_REPLY_TO = "dlq-in-reply-to"
IS_ERROR = "dlq-error"


def reply(
    delivery: Delivery, body: bytes, content_type: str | None, *, id: str, now: datetime
) -> Message:
    """Return the reply that carries a handler's result."""
    return Message(
        id=id,
        body=body,
        sent_at=now,
        headers=((IN_REPLY_TO, delivery.message.id.encode()),),
        content_type=content_type,
        key=delivery.message.key,
        traceparent=delivery.message.traceparent,
    )


def bad_news(delivery: Delivery, decision: Decision, failure: Failure) -> object:
    """Return the body of the reply to a message that failed."""
    what = "ended" if not isinstance(decision, Bury | Fail) else "failed"
    if isinstance(decision, Bury):
        what = "dead-lettered"
    return {
        "error": f"{what} after {delivery.charged} attempts: {failure.text}",
        "error_type": failure.error_type,
        "code": failure.code,
        "attempts": delivery.charged,
        "message_id": delivery.message.id,
    }


def error_reply(
    delivery: Delivery, failure: Failure, news: bytes, *, id: str, now: datetime
) -> Message:
    """
    Return the reply to a message that failed for good.

    It is sent after the dead letter is durable, so that it is never wrong.
    """
    message = reply(delivery, news, "application/json", id=id, now=now)
    return msgspec.structs.replace(
        message, headers=(*message.headers, (IS_ERROR, failure.code.encode()))
    )
