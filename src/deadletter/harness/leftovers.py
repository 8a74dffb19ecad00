"""What is left to do in a test, as a table for people."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from deadletter.core.attempts import read
from deadletter.core.text import clean, cut, many, span
from deadletter.stores.memory.queue import Row

_SHOWN = 20
_LONGEST = 60  # characters of a cell


class NotSettled(AssertionError):
    """Messages of a test are left to do."""


def table(
    left: Sequence[tuple[str, Row]], now: datetime, complaints: Mapping[str, str], why: str
) -> str:
    """Return a text with a line for each message that is left."""
    lines = [("mailbox", "message", "state", "attempts", "latest error")]
    lines += [
        (mailbox, row.message.id, _state(row, now), str(row.attempts), _error(row))
        for mailbox, row in left[:_SHOWN]
    ]
    cells = [[cut(clean(cell), _LONGEST) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    drawn = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    more = [f"and {len(left) - _SHOWN:,} more"] if len(left) > _SHOWN else []
    said = [f"{name}: {clean(text)}" for name, text in complaints.items()]
    return "\n".join([f"{many(len(left), 'message')} left: {why}", *drawn, *more, *said])


def _state(row: Row, now: datetime) -> str:
    if row.token is not None:
        return "running"
    seconds = (row.due - now).total_seconds()
    if seconds <= 0:
        return "due"
    return f"{'retry' if row.attempts else 'due'} in {span(seconds)}"


def _error(row: Row) -> str:
    story = read(row.history)
    if not story:
        return ""
    last = story[-1]
    return f"{last.error_type.rpartition('.')[2]}: {last.text}"
