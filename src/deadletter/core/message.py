"""What travels: a message, and one handing-over of it to us."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct

from .errors import ConfigError

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""A time as it is read from a broker: without a zone nothing compares with it."""

_TEXTS: Final = (
    *("id", "content_type", "key", "reply_to", "idempotency_key"),
    *("traceparent", "tracestate"),
)
LONGEST_TEXT: Final = 8 * 1024  # bytes of each of these, and of a header's name
RESERVED: Final = "dlq-"
"""How the names of our own headers begin: nobody sends these through us."""

LONGEST: Final = 36_500 * 86_400.0  # seconds that anything is put off


class Lineage(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where a replayed copy came from; absent on what a producer sent."""

    letter_id: str
    generation: int  # 1 for the first replay; part of every dedup id
    campaign: str
    mailbox: str = ""  # that it was sent to, where others could have written this
    signature: str = ""  # ...over all of it and the body, see `core.signing`


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """
    What a producer sent.

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
        """The last header of that name as text, odd bytes shown as U+FFFD."""
        for key, value in reversed(self.headers):
            if key == name:
                return value.decode("utf-8", "replace")
        return None

    @property
    def generation(self) -> int:
        """How often this message has been replayed."""
        return self.lineage.generation if self.lineage else 0

    @property
    def dedup_id(self) -> str:
        """
        The id a broker may de-duplicate by.

        A replayed copy has another one than its original; otherwise SQS FIFO
        and JetStream would swallow it and say "accepted".
        """
        return f"{self.id}~{self.generation}" if self.lineage else self.id


class Delivery(Struct, frozen=True, kw_only=True):
    """
    One handing-over of a message to us.

    The receipt is whatever its driver needs to settle it; nobody else looks.
    `history` holds the earlier attempts as JSON lines (see `core.attempts`).
    """

    message: Message
    mailbox: str
    attempt: int = 1  # counts from 1, durably, at claim time; never shrinks
    spared: int = 0  # how many of those were lost through no fault of its own
    suspect: bool = False  # a worker died holding it: run it alone
    partition: str = ""
    position: str | None = None  # offset, stream sequence … for people
    first_received_at: datetime | None = None
    history: str = ""
    receipt: Any = None
    unreadable: str = ""  # why nobody can be handed it; what was stored is kept with it
    corrupt: bool = False  # ...because it does not match its checksum
    unsigned: bool = False  # it came with attempts that none of us has written

    @property
    def charged(self) -> int:
        """How many attempts count against the limit, this one included."""
        return self.attempt - self.spared


def as_headers(
    given: Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]] | None,
) -> Headers:
    """Headers as they are kept: pairs of a name and bytes."""
    if not given:
        return ()
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((_as_name(name), _as_bytes(name, value)) for name, value in pairs)


def sendable_headers(
    given: Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]] | None,
) -> Headers:
    """Headers of an application, refused if a name is reserved for our own."""
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
    A message of an application, refused if a text of it is none or too long.

    An engine would take a number for a key, but nobody could be handed it: whoever
    receives expects a text, and all that was received with it would wait for good.
    Half a character, or a text that no search can name, is refused here as well:
    here somebody can still mend it.
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
    """A time to wait, refused if no clock could tell when it is over."""
    if isinstance(seconds, int | float) and seconds <= LONGEST:
        return seconds
    raise ConfigError(
        f"{name}={seconds!a} is not a time to wait: use a number of seconds, at most "
        f"{LONGEST:,.0f}."
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
