"""
Times as documents hold them.

A date in BSON ends at milliseconds, and ours do not: what must be exact is a number
of microseconds. Dates are written beside them for people and for the server's own
expiry.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, overload

_START: Final = datetime.min.replace(tzinfo=UTC)  # no time is before it
_MICROSECOND: Final = timedelta(microseconds=1)
_HALF: Final = 8  # bytes


@overload
def number(time: datetime) -> int: ...
@overload
def number(time: datetime | None) -> int | None: ...
def number(time: datetime | None) -> int | None:
    """Microseconds since the first of all times."""
    return None if time is None else (time - _START) // _MICROSECOND


@overload
def time(number: int) -> datetime: ...
@overload
def time(number: int | None) -> datetime | None: ...
def time(number: int | None) -> datetime | None:
    """The time that a number stands for."""
    return None if number is None else _START + number * _MICROSECOND


def place(dead_at: datetime, seq: int = 0) -> bytes:
    """
    Where a letter stands in every list, as bytes that sort like it.

    One value instead of two, so that a list can be read on from any place by a
    plain range of an index.
    """
    return number(dead_at).to_bytes(_HALF, "big") + seq.to_bytes(_HALF, "big")


def placed(place: bytes) -> tuple[datetime, int]:
    """When the letter at a place died, and its number."""
    died, seq = place[:_HALF], place[_HALF:]
    return time(int.from_bytes(died, "big")), int.from_bytes(seq, "big")
