"""
The fields of the search language, as data.

The parser checks values against this table, `condition` looks up the meaning of a field on a
letter, and documentation and completions are generated from it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import AnyStr, Final, TypeAlias

from msgspec import Struct

from deadletter.core.failure import ErrorCategory, Reason, Trouble
from deadletter.core.letter import State

from .ast import Op

# Text with wildcards, matched in linear time.
#
# In a pattern `*` stands for any text, also none; `\*` is a star and `\\` a
# backslash. Nothing here is ever a regular expression, and nothing backtracks.

Pieces: TypeAlias = tuple[str, ...]
"""The literal texts around the stars of a pattern; one if it has no star."""

_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def pieces(pattern: str) -> Pieces:
    """Split a pattern: `a*b` is `("a", "b")`, `a*` is `("a", "")`."""
    if "*" not in pattern and "\\" not in pattern:
        return (pattern,)
    found: list[str] = []
    literal: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "*":
            found.append("".join(literal))
            literal.clear()
        elif character == "\\":
            literal.append(next(characters, "\\"))
        else:
            literal.append(character)
    return (*found, "".join(literal))


def pattern(parts: Iterable[str]) -> str:
    """Join pieces to a pattern; stars in a row become one."""
    first, *rest = map(literal, parts)
    if not rest:
        return first
    middle = [part for part in rest[:-1] if part]
    return "*".join([first, *middle, rest[-1]])


def literal(text: str) -> str:
    """Return the pattern that matches only this text."""
    return text.replace("\\", "\\\\").replace("*", "\\*")


def fold(text: str) -> str:
    """
    Return the text with A to Z in lower case, and nothing else changed.

    Every database can do exactly this, so all of them agree.
    """
    return text.lower() if text.isascii() else text.translate(_LOWER)


def fits(parts: Sequence[AnyStr], text: AnyStr) -> bool:
    """Return whether the whole text fits a pattern's pieces."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return text == first
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    # The leftmost place for each piece leaves the most room for the next.
    for part in parts[1:-1]:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


class Kind(StrEnum):
    """The kinds of values that a field takes."""

    ENUM = "enum"  # one of `choices`
    FLAG = "flag"  # one of `choices`: something a letter has or has not
    TEXT = "text"  # a pattern
    NUMBER = "number"  # a whole number
    TIME = "time"  # a date, or a date and time
    DURATION = "duration"  # 90s, 15m, 24h, 7d, 2w
    PATH = "path"  # a place in the contents; text or any number
    OUTAGE = "outage"  # an outage, by its id or kind


class Way(StrEnum):
    """The ways to compare text."""

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
        """Return whether its value may be a list `[a,b]`."""
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
        name=name, kind=kind, attribute=attribute, about=about, example=example, ops=ANY_OP
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
    _text("source", "source", "the mailbox it came from", "source:orders", aliases=("mailbox",)),
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
    _choice("trouble", "what kind of trouble the error is", "trouble:transient", Trouble),
    _choice("category", "whether trying again was worth it", "category:RETRYABLE", ErrorCategory),
    _text("code", "code", "the error's code", "code:HTTP_503", Way.FOLDED),
    _text(
        "error",
        "error_type",
        "the error's type, with or without its module",
        "error:TimeoutError",
        Way.NAME,
    ),
    _text(
        "text", "error_text", "part of the error's text", 'text:"connection refused"', Way.WITHIN
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
    Field(
        name="during",
        kind=Kind.OUTAGE,
        about="died while an outage held its mailbox back: one by its id, of a kind, or any",
        example="during:any",
        choices=("any", "outage", "systemic"),
    ),
    _ordered(
        "first", Kind.TIME, "first_failed_at", "when it failed first", "first:<2026-11-01T12:00"
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

_BY_ANY_NAME: Final = FIELDS | {alias: field for field in _TABLE for alias in field.aliases}


def field_called(name: str) -> Field | None:
    """Return the field with this name or alias, in any case."""
    return _BY_ANY_NAME.get(name.lower())


def nearest(name: str) -> str | None:
    """Return the field name that was probably meant."""
    if len(name) > 30:  # comparing long texts is slow
        return None
    close = get_close_matches(name.lower(), _BY_ANY_NAME, n=1, cutoff=0.6)
    return close[0] if close else None


# Values, each in one form.
#
# `written` converts what a person typed into that form, or says what to type instead.
# Times and numbers are half-open spans, from the first instant to the one after the
# last, so that "on that day" and "after that day" are exact.

_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d)(:\d\d(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_DURATION: Final = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,29})(\.\d{1,30})?", re.ASCII)
_OUTAGE_ID: Final = re.compile(r"[A-Za-z0-9_-]{6,80}", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LONGEST: Final = timedelta(days=36500)
_MOST_SECONDS: Final = 10**12  # far longer than that, and still a timedelta
_START: Final = datetime.min.replace(tzinfo=UTC)
_END: Final = datetime.max.replace(tzinfo=UTC)


def written(field: Field, op: Op, typed: str) -> str:
    """Return a value in the form of the tree. Raises ValueError with advice."""
    if op is Op.IS and field.kind in {Kind.TEXT, Kind.PATH}:
        return typed
    text, *more = pieces(typed)
    if more:
        raise ValueError(f"{field.name} takes no *; write it like {field.example}")
    return _WRITERS[field.kind](field, text)


def number(text: str) -> int | float | None:
    """Return the number of a text; None if it is none, or an id such as `007`."""
    found = _NUMBER.fullmatch(text)
    if not found:
        return None
    return float(text) if found[1] else int(text)


def duration(value: str) -> timedelta | None:
    """Return the length of a written duration; None if it is invalid."""
    found = _DURATION.fullmatch(value)
    if not found:
        return None
    return timedelta(seconds=min(int(found[1]) * _SECONDS[found[2]], _MOST_SECONDS))


def time_span(value: str) -> tuple[datetime, datetime]:
    """Return the instants that a written time covers: a day, a minute, a second or one."""
    start = datetime.fromisoformat(value)
    if start.tzinfo is None:  # only days are written without a zone
        start = start.replace(tzinfo=UTC)
    return start, _after(start, _PRECISION.get(len(value), timedelta(microseconds=1)))


_PRECISION: Final = {
    len("2026-11-01"): timedelta(days=1),
    len("2026-11-01T12:00Z"): timedelta(minutes=1),
    len("2026-11-01T12:00:00Z"): timedelta(seconds=1),
}


def instant(when: datetime) -> str:
    """Return an instant as text that covers no other."""
    moment = when.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + "Z"


def before(now: datetime, span: timedelta) -> datetime:
    """Return the time that long ago, or the earliest date."""
    try:
        return now.astimezone(UTC) - span
    except OverflowError:
        return _START


def _after(start: datetime, span: timedelta) -> datetime:
    try:
        return start + span
    except OverflowError:
        return _END


def _chosen(field: Field, text: str) -> str:
    choices = {_plain(choice): str(choice) for choice in field.choices}
    choices |= field.also
    chosen = choices.get(_plain(text))
    if chosen is None:
        known = ", ".join(map(str, (*field.choices, *field.also)))
        raise ValueError(f"{field.name}:{text[:40]} is not valid; use one of: {known}")
    return chosen


def _plain(choice: str) -> str:
    return choice.lower().replace("-", "_")


def _version(field: Field, text: str) -> str:
    if not text:
        raise ValueError(f"{field.name} is missing; write it like {field.example}")
    return literal(text)


def _outage(field: Field, text: str) -> str:
    if text.lower() in field.choices:
        return text.lower()
    if not _OUTAGE_ID.fullmatch(text):
        known = ", ".join(field.choices)
        raise ValueError(
            f'"{text[:40]}" is not an outage; use one of: {known}, or an id, at least its'
            " first 6 characters"
        )
    return text


def _whole(field: Field, text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f'"{text[:40]}" is not a whole number; write it like {field.example}')
    return str(int(text))


def _compared(field: Field, text: str) -> str:
    if number(text) is None:
        raise ValueError(
            f'{field.name} is compared with numbers, which "{text[:40]}" is not; '
            f"write it like {field.name}.amount:>100"
        )
    return text


def _long(field: Field, text: str) -> str:
    how_long = duration(text.lower())
    if how_long is None or how_long > _LONGEST:
        raise ValueError(
            f'"{text[:40]}" is not a duration up to 100 years; write a number and '
            f"s, m, h, d or w, like {field.example}"
        )
    return f"{int(text[:-1])}{text[-1].lower()}"


def _when(field: Field, text: str) -> str:
    if field.relative and _DURATION.fullmatch(text.lower()):
        return _long(field, text)
    found = _TIME.fullmatch(text.upper())
    try:
        if found:
            return _utc(found)
    except (ValueError, OverflowError):  # the 31st of June, 25 o'clock, year 0
        pass
    or_duration = ", or a duration like 7d" if field.relative else ""
    raise ValueError(
        f'"{text[:40]}" is not a time; write 2026-11-01, 2026-11-01T12:00 or '
        f"2026-11-01T12:00:00Z (UTC unless it says otherwise){or_duration}"
    )


def _utc(found: re.Match[str]) -> str:
    day, clock, seconds, fraction, zone = found.groups()
    if not clock:
        return datetime.fromisoformat(day).date().isoformat()
    moment = datetime.fromisoformat(f"{day}T{clock}{(seconds or '')[:3]}{zone or 'Z'}")
    moment = moment.astimezone(UTC)
    if fraction:
        return instant(moment.replace(microsecond=int(fraction.ljust(6, "0")[:6])))
    precision = "seconds" if seconds else "minutes"
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


_WRITERS: Final[dict[Kind, Callable[[Field, str], str]]] = {
    Kind.TEXT: _version,
    Kind.ENUM: _chosen,
    Kind.FLAG: _chosen,
    Kind.NUMBER: _whole,
    Kind.PATH: _compared,
    Kind.DURATION: _long,
    Kind.TIME: _when,
    Kind.OUTAGE: _outage,
}
