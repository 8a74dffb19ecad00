"""
What one can search for, as data.

The parser checks values against this table, `conditions` looks up what a field
means on a letter, and documentation and completions are written from it.
"""

from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from msgspec import Struct

from deadletter.core.decision import Reason
from deadletter.core.failure import ErrorCategory, Trouble
from deadletter.core.letter import State

from .ast import Op


class Kind(StrEnum):
    """What sort of values a field takes."""

    ENUM = "enum"  # one of `choices`
    FLAG = "flag"  # one of `choices`: something a letter has or has not
    TEXT = "text"  # a pattern
    NUMBER = "number"  # a whole number
    TIME = "time"  # a date, or a date and time
    DURATION = "duration"  # 90s, 15m, 24h, 7d, 2w
    PATH = "path"  # a place in the contents; text or any number


class Way(StrEnum):
    """How text is compared."""

    EXACT = "exact"
    FOLDED = "folded"  # the case of A to Z does not matter
    NAME = "name"  # folded; the whole name, or what follows its last dot
    WITHIN = "within"  # folded; anywhere in the text


ANY_OP: Final = (Op.IS, Op.GT, Op.GE, Op.LT, Op.LE)


class Field(Struct, frozen=True, kw_only=True):
    """One field of the search language."""

    name: str
    kind: Kind
    about: str
    example: str
    attribute: str = ""  # of LetterHead; empty where it takes more than one
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    also: dict[str, str] = {}  # other words for some of the choices
    ops: tuple[Op, ...] = (Op.IS,)
    way: Way = Way.EXACT
    relative: bool = False  # a time that may be given as a duration before now

    @property
    def takes_lists(self) -> bool:
        """Whether `[a,b]` makes sense as its value."""
        return Op.IS in self.ops and not self.relative


def _choice(
    name: str, about: str, example: str, choices: type[StrEnum], attribute: str = ""
) -> Field:
    return Field(
        name=name,
        kind=Kind.ENUM,
        about=about,
        example=example,
        attribute=attribute or name,
        choices=tuple(choices),
    )


def _text(  # noqa: PLR0917 -- the columns of the table below
    name: str,
    attribute: str,
    about: str,
    example: str,
    way: Way = Way.EXACT,
    aliases: tuple[str, ...] = (),
) -> Field:
    return Field(
        name=name,
        kind=Kind.TEXT,
        attribute=attribute,
        about=about,
        example=example,
        way=way,
        aliases=aliases,
    )


def _ordered(name: str, kind: Kind, attribute: str, about: str, example: str) -> Field:
    return Field(
        name=name,
        kind=kind,
        attribute=attribute,
        about=about,
        example=example,
        ops=ANY_OP,
    )


_TABLE: Final = (
    Field(
        name="is",
        kind=Kind.ENUM,
        about="the letter's state; open is any that still needs somebody",
        example="is:pending",
        choices=(*State, "open", "conflict"),
        also={"unreviewed": "pending"},
    ),
    Field(
        name="has",
        kind=Kind.FLAG,
        about="something a letter may or may not have",
        example="has:trace",
        choices=(
            *("trace", "key", "idempotency_key", "replays"),
            *("reply_to", "expires", "headers", "body"),
        ),
        also={"business_key": "idempotency_key"},
    ),
    _text("id", "id", "the letter's id", "id:abc*"),
    _text(
        "source",
        "source",
        "the mailbox it came from",
        "source:orders",
        aliases=("mailbox",),
    ),
    _text("partition", "partition", "the partition it came from", "partition:3"),
    _text("message", "message_id", "the message's id", "message:m-1"),
    _text("key", "key", "the message's ordering key", "key:customer-7"),
    _text(
        "business_key",
        "business_key",
        "the message's idempotency key",
        "business_key:order-42",
        aliases=("idempotency_key",),
    ),
    _choice("reason", "why it became a dead letter", "reason:expired", Reason),
    _choice(
        "trouble", "what kind of trouble the error is", "trouble:transient", Trouble
    ),
    _choice(
        "category",
        "whether trying again was worth it",
        "category:RETRYABLE",
        ErrorCategory,
    ),
    _text("code", "code", "the error's code", "code:HTTP_503", Way.FOLDED),
    _text(
        "error",
        "error_type",
        "the error's type, with or without its module",
        "error:TimeoutError",
        Way.NAME,
    ),
    _text(
        "text",
        "error_text",
        "part of the error's text",
        'text:"connection refused"',
        Way.WITHIN,
    ),
    _text("group", "fingerprint", "the group of like failures", "group:1a2b*"),
    _ordered("attempts", Kind.NUMBER, "attempts", "how often tried", "attempts:>3"),
    _ordered("replays", Kind.NUMBER, "replays", "how often replayed", "replays:0"),
    Field(
        name="version",
        kind=Kind.TEXT,
        attribute="version",
        about="the application's version; with > or <, older or newer ones",
        example="version:<1.8",
        ops=ANY_OP,
    ),
    _text("consumer", "consumer", "the handler that gave up on it", "consumer:charge"),
    _text("trace", "trace_id", "the trace it belongs to", "trace:4bf92f35*"),
    _ordered("size", Kind.NUMBER, "size", "bytes of the message", "size:>1000"),
    Field(
        name="age",
        kind=Kind.DURATION,
        attribute="dead_at",
        about="how long it has been dead",
        example="age:>24h",
        ops=(Op.GT, Op.GE, Op.LT, Op.LE),
    ),
    Field(
        name="since",
        kind=Kind.TIME,
        attribute="dead_at",
        about="died then or later; a duration counts back from now",
        example="since:7d",
        relative=True,
    ),
    Field(
        name="until",
        kind=Kind.TIME,
        attribute="dead_at",
        about="died then or earlier, a whole day included",
        example="until:2026-11-01",
        relative=True,
    ),
    _ordered("dead", Kind.TIME, "dead_at", "when it died last", "dead:>2026-11-01"),
    _ordered(
        "first",
        Kind.TIME,
        "first_failed_at",
        "when it failed first",
        "first:<2026-11-01T12:00",
    ),
    Field(
        name="header",
        kind=Kind.PATH,
        about="a header of the message, by name",
        example="header.tenant:eu",
        ops=ANY_OP,
    ),
    Field(
        name="body",
        kind=Kind.PATH,
        about="a place in a JSON body: names and list positions",
        example="body.order.items.0.sku:A-1",
        ops=ANY_OP,
    ),
)

FIELDS: Final[dict[str, Field]] = {field.name: field for field in _TABLE}

_BY_ANY_NAME: Final = FIELDS | {
    alias: field for field in _TABLE for alias in field.aliases
}


def field_called(name: str) -> Field | None:
    """The field of this name or alias, however its letters are cased."""
    return _BY_ANY_NAME.get(name.lower())


def nearest(name: str) -> str | None:
    """The field name one may have meant."""
    if len(name) > 30:  # comparing long texts is costly, and no typo is that long
        return None
    close = get_close_matches(name.lower(), _BY_ANY_NAME, n=1, cutoff=0.6)
    return close[0] if close else None
