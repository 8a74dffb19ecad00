"""
Values, checked and written in one way each.

`written` turns what a person typed into that one way, or says what to type
instead. Times and numbers are spans, so that "on that day" and "after that day"
mean what they say: half-open, from the first instant to the one after the last.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from .ast import Op
from .fields import Field, Kind
from .pattern import literal, pieces

_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d)(:\d\d(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)
_DURATION: Final = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,29})(\.\d{1,30})?", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LONGEST: Final = timedelta(days=36500)
_MOST_SECONDS: Final = 10**12  # far longer than that, and still a timedelta
_START: Final = datetime.min.replace(tzinfo=UTC)
_END: Final = datetime.max.replace(tzinfo=UTC)


def written(field: Field, op: Op, typed: str) -> str:
    """The value as the tree has it; a ValueError says what to type instead."""
    if op is Op.IS and field.kind in {Kind.TEXT, Kind.PATH}:
        return typed
    text, *more = pieces(typed)
    if more:
        raise ValueError(f"{field.name} takes no *; write it like {field.example}")
    return _WRITERS[field.kind](field, text)


def number(text: str) -> int | float | None:
    """The number a text is, if it is one; `007` is not, it is an id."""
    found = _NUMBER.fullmatch(text)
    if not found:
        return None
    return float(text) if found[1] else int(text)


def duration(value: str) -> timedelta | None:
    """How long a written duration is; nothing if it is something else."""
    found = _DURATION.fullmatch(value)
    if not found:
        return None
    return timedelta(seconds=min(int(found[1]) * _SECONDS[found[2]], _MOST_SECONDS))


def time_span(value: str) -> tuple[datetime, datetime]:
    """The instants a written time covers: a day, a minute, a second or one."""
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
    """One instant, written so that it covers no other."""
    moment = when.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + "Z"


def before(now: datetime, span: timedelta) -> datetime:
    """That long ago, or as far back as there are dates."""
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
        raise ValueError(f'{field.name} cannot be "{text[:40]}"; it is one of: {known}')
    return chosen


def _plain(choice: str) -> str:
    return choice.lower().replace("-", "_")


def _version(field: Field, text: str) -> str:
    if not text:
        raise ValueError(f"{field.name} is missing; write it like {field.example}")
    return literal(text)


def _whole(field: Field, text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(
            f'"{text[:40]}" is not a whole number; write it like {field.example}'
        )
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
}
