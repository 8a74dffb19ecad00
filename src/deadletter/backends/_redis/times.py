"""Times as they are told to a server: whole microseconds since 1970."""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """A time as it is stored, exactly."""
    return (at - EPOCH) // _MICROSECOND


def when(at: bytes) -> datetime:
    """The time that was stored."""
    return EPOCH + timedelta(0, 0, int(float(at)))


def seconds(duration: float) -> int:
    """A duration as it is stored, never a negative one."""
    return max(0, round(duration * 1_000_000))
