"""Cursors: the position at which a list continues, as text."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from .errors import QueryError
from .letter import Group

GroupPlace: TypeAlias = tuple[int, int, datetime, str]
"""Open letters, deaths ever, when the last one was, and the fingerprint."""

_CURSOR: Final = re.compile(r"([0-9a-f]{1,15})\.([0-9a-f]{1,15})", re.ASCII)
_OF_GROUPS: Final = re.compile(
    r"([0-9a-f]{1,15})\.([0-9a-f]{1,15})\.([0-9a-f]{1,15})\.(.*)", re.DOTALL
)
_START: Final = datetime.min.replace(tzinfo=UTC)  # no time is before it
_MICROSECOND: Final = timedelta(microseconds=1)


def cursor(dead_at: datetime, seq: int) -> str:
    """The place behind a letter, by when it died and its number in its store."""
    return f"{_number(dead_at):x}.{seq:x}"


def place(cursor: str) -> tuple[datetime, int]:
    """The place a cursor stands for; a QueryError when it is none."""
    found = _CURSOR.fullmatch(cursor)
    try:
        if found is not None:
            return _time(found[1]), int(found[2], 16)
    except OverflowError:
        pass
    raise left_off_nowhere(cursor)


def place_of_group(group: Group) -> GroupPlace:
    """Return where a group stands in lists; all stores order groups by this or its end."""
    return group.open, group.total, group.last_seen, group.fingerprint


def group_cursor(group: Group) -> str:
    """The place behind a group."""
    opened, total, seen, name = place_of_group(group)
    return f"{opened:x}.{total:x}.{_number(seen):x}.{name}"


def group_place(cursor: str) -> GroupPlace:
    """The place among groups that a cursor stands for; a QueryError when it is none."""
    found = _OF_GROUPS.fullmatch(cursor)
    try:
        if found is not None:
            opened, total, seen, name = found.groups()
            return int(opened, 16), int(total, 16), _time(seen), name
    except OverflowError:
        pass
    raise left_off_nowhere(cursor)


def left_off_nowhere(cursor: str) -> QueryError:
    """There is no such place in the list."""
    return QueryError(
        f"{cursor[:60]!a} is not where a list was left off: hand back `after` as the"
        " last page gave it, or leave it out to start from the first"
    )


def _number(time: datetime) -> int:
    return (time - _START) // _MICROSECOND


def _time(number: str) -> datetime:
    return _START + int(number, 16) * _MICROSECOND
