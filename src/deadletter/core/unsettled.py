"""Letters that wait for the outcome of a replay, by source."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from .letter import State

LONG_WAIT: Final = timedelta(hours=1)
"""For the outcome of a replay, before somebody should have a look."""


class Unsettled(Struct, frozen=True, kw_only=True):
    """Letters of one source that wait for the outcome of a replay."""

    source: str
    letters: int
    since: datetime | None = None  # when the first of their copies was taken


def is_any_unsettled(counts: Mapping[str, Mapping[State, int]]) -> bool:
    """Whether there is a letter that waits, of letters counted by source and state."""
    return any(states.get(State.REPLAYING) for states in counts.values())


def unsettled_letters(
    counts: Mapping[str, Mapping[State, int]], since: Mapping[str, datetime]
) -> tuple[Unsettled, ...]:
    """Return what waits by source, the longest wait first."""
    found = [
        Unsettled(source=source, letters=letters, since=since.get(source))
        for source, states in counts.items()
        if (letters := states.get(State.REPLAYING, 0))
    ]
    known = sorted(
        (one for one in found if one.since is not None),
        key=lambda one: (one.since, one.source),
    )
    return (*known, *(one for one in found if one.since is None))


def together(waits: Iterable[Unsettled]) -> tuple[int, datetime | None]:
    """How many letters wait in all, and since when the first of them does."""
    every = tuple(waits)
    times = [one.since for one in every if one.since is not None]
    return sum(one.letters for one in every), min(times, default=None)
