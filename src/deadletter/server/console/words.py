"""Numbers, times and sentences as the console writes them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from deadletter.core.text import many

__all__ = ["ACTS", "act_word", "ago", "exact", "joined", "many", "number", "share", "stamp"]

ACTS: Final = {
    "block": "block address",
    "campaign": "change replay",
    "create": "create mailbox",
    "delete": "delete mailbox",
    "issue": "issue token",
    "queue.clear": "clear queue",
    "queue.produce": "add items",
    "queues.create": "create queue",
    "queues.delete": "delete queue",
    "queues.update": "change queue",
    "replay": "plan replay",
    "revoke": "revoke token",
    "update": "change mailbox",
}
"""What the actions of the audit are called where one word does not say it."""
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


def number(count: int, *, at_least: bool = False) -> str:
    """Return a number with thousands separators: `1,204`, or `≥ 10,000`."""
    return f"≥ {count:,}" if at_least else f"{count:,}"


def act_word(action: str) -> str:
    """Return an action of the audit in plain words; `move to closed` keeps what follows."""
    name, space, rest = action.partition(" ")
    return f"{ACTS.get(name, name)}{space}{rest}"


def share(part: int, whole: int) -> str:
    """Return a share in percent: `62%`; less than half a percent is `< 1%`."""
    if not whole or not part:
        return "0%"
    percent = round(100 * part / whole)
    return f"{percent}%" if percent else "< 1%"


def ago(at: datetime, now: datetime) -> str:
    """Return how long ago something was; from a day on, its date and time."""
    seconds = (now - at).total_seconds()
    if seconds >= _DAY:
        return _date(at, now)
    if seconds < 0:
        return ahead(-seconds) if seconds > -_DAY else _date(at, now)
    if seconds < 1:
        return "now"
    return f"{_span(seconds)} ago"


def ahead(seconds: float) -> str:
    """Return how far ahead something is: `in 12 min`."""
    return f"in {_span(max(seconds, 1))}"


def exact(at: datetime) -> str:
    """Return a time to the second, in UTC, for people."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def stamp(at: datetime) -> str:
    """Return a time for the attribute `datetime`."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def joined(parts: Sequence[str]) -> str:
    """Return parts of a sentence as a list: `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _span(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{seconds:.0f} s" if seconds < _MINUTE - 0.5 else "1 min"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min"
    return f"{seconds // _HOUR:.0f} h"


def _date(at: datetime, now: datetime) -> str:
    local = at.astimezone(UTC)
    if abs(now - at) < timedelta(days=300):
        return f"{local.day} {local:%b %H:%M}"
    return f"{local.day} {local:%b %Y}"
