"""Times and amounts as people say them."""

from datetime import datetime, timedelta
from typing import Final

from deadletter.core.counts import many

__all__ = ["ago", "local", "many", "size", "span", "time_zone"]

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def ago(when: datetime, now: datetime) -> str:
    """How long ago something was, or how soon it will be."""
    seconds = (now - when).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A length of time in its largest unit."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "less than 1 ms"


def local(when: datetime) -> str:
    """A time of day where this person is."""
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S}"


def time_zone(now: datetime) -> str:
    """The name of the zone `local` writes times in."""
    offset = now.astimezone().utcoffset() or timedelta()
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    sign = "-" if offset < timedelta() else "+"
    return f"UTC{sign}{hours:02}:{minutes:02}" if offset else "UTC"


def size(count: int) -> str:
    """A number of bytes."""
    if count < 10_000:
        return f"{count:,} bytes"
    if count < 10_000_000:
        return f"{count / 1_000:,.0f} kB"
    return f"{count / 1_000_000:,.0f} MB"
