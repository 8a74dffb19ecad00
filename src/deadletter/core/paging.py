"""Where a list of letters was left off, as text to be handed back for more."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from .errors import QueryError

_CURSOR: Final = re.compile(r"([0-9a-f]{1,15})\.([0-9a-f]{1,15})", re.ASCII)
_START: Final = datetime.min.replace(tzinfo=UTC)  # no time is before it
_MICROSECOND: Final = timedelta(microseconds=1)


def cursor(dead_at: datetime, seq: int) -> str:
    """The place behind a letter, by when it died and its number in its store."""
    return f"{(dead_at - _START) // _MICROSECOND:x}.{seq:x}"


def place(cursor: str) -> tuple[datetime, int]:
    """The place a cursor stands for; a QueryError when it is none."""
    found = _CURSOR.fullmatch(cursor)
    try:
        if found is not None:
            return _START + int(found[1], 16) * _MICROSECOND, int(found[2], 16)
    except OverflowError:
        pass
    raise QueryError(
        f"{cursor[:60]!a} is not where a list was left off: hand back `after` as the"
        " last page gave it, or leave it out to start from the newest"
    )
