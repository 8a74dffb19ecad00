"""
One step of a search, for every store, and the cursors of lists.

`search_step` yields what to read next and is sent the result. The store reads, newest death
first; this module decides what matches and how much may be read.
"""

import re
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from deadletter.core.errors import QueryError
from deadletter.core.letter import DeadLetter, Group, LetterHead

from .ast import Node
from .match import LOOK, matcher, needs_contents, weight

# The budget of one step of a search, and the meter that watches it.
#
# A search is answered in steps, so that no search keeps a store busy for long. Every
# step judges at least one letter or passes over some, so that steps lead somewhere.


class Budget(Struct, frozen=True, kw_only=True):
    """The budget of one search step; the first limit reached ends the step."""

    letters: int = 10_000  # looked at, most of them by an index alone
    opened: int = 500  # letters whose contents are read
    size: int = 16_000_000  # bytes of these contents
    seconds: float = 0.25


STEP: Final = Budget()


class Meter:
    """
    The resources that one search step has used so far.

    `stop` may be called from any thread when the caller no longer waits.
    """

    def __init__(self, monotonic: Callable[[], float], budget: Budget = STEP) -> None:
        self.budget = budget
        self.is_stopped = False
        self._monotonic = monotonic
        self._opened = self._size = 0
        self.start()

    @property
    def is_spent(self) -> bool:
        """Return whether the step has to end."""
        return (
            self.is_stopped
            or self._opened >= self.budget.opened
            or self._size >= self.budget.size
            or self._monotonic() >= self._until
        )

    @property
    def left_to_open(self) -> int:
        """Return how many more letters may be opened."""
        return self.budget.opened - self._opened

    def start(self) -> None:
        """Start to measure the time."""
        self._until = self._monotonic() + self.budget.seconds

    def opened(self, size: int) -> None:
        """Record that the contents of a letter were read, with their size in bytes."""
        self._opened += 1
        self._size += size

    def stop(self) -> None:
        """End the step as soon as possible."""
        self.is_stopped = True


P = TypeVar("P")  # the place of a letter, in the form of the store

PORTION: Final = 100  # letters opened at once
PORTION_SIZE: Final = 4_000_000  # bytes of contents read at once
CUT: Final = LOOK + 1
"""The bytes of a body to read: one more than any search looks at."""
_STRETCH: Final = 50_000  # heads passed over at once, divided by their weight
_SHORTEST: Final = 50
_AHEAD: Final = 4  # times as many letters as are wanted are passed over first, then more


class Bottom(Struct, Generic[P], frozen=True):
    """A request for the place of the `depth`-th letter after `after`, or None."""

    after: P | None
    depth: int


class Heads(Struct, Generic[P], frozen=True):
    """A request for places and letters without contents, after `after`, down to `end`."""

    after: P | None
    end: P | None
    most: int


class Sizes(Struct, Generic[P], frozen=True):
    """A request for places and sizes of contents, after `after`, down to `end`."""

    after: P | None
    end: P | None
    most: int


class Contents(Struct, Generic[P], frozen=True):
    """A request for the letters at these places, with bodies up to `CUT` bytes."""

    places: Sequence[P]


class Named(Struct, Generic[P], frozen=True):
    """A request for places, ids, and whether a letter surely matches; as `Heads` otherwise."""

    after: P | None
    end: P | None
    most: int


class Found(Struct, Generic[P], frozen=True):
    """The letters that a step found, and where to continue; `last` is None at the end."""

    hits: list[tuple[P, LetterHead]]
    last: P | None


class FoundNames(Struct, Generic[P], frozen=True):
    """The ids that a step found, and where to continue; `last` is None at the end."""

    ids: tuple[str, ...]
    last: P | None


Wanted: TypeAlias = Bottom[P] | Heads[P] | Sizes[P] | Contents[P] | Named[P]
Step: TypeAlias = Generator[Wanted[P], Any, Found[P]]
NamesStep: TypeAlias = Generator[Wanted[P], Any, FoundNames[P] | None]


def search_step(
    query: Node, *, limit: int, start: P | None, exact: bool, now: datetime, meter: Meter
) -> Step[P]:
    """
    Find up to `limit` letters that match, after `start`.

    With `exact`, the store reads only letters that fulfil the head part of the search, so heads
    are not counted before they are read.
    """
    hits: list[tuple[P, LetterHead]] = []
    judging = _opening if needs_contents(query) else _looking
    fulfils = matcher(query, now=now)
    at, left = start, meter.budget.letters
    reach = max(_SHORTEST, _AHEAD * limit)
    while True:
        depth = min(_stretch(query), left, reach)
        end: P | None = None if exact else (yield Bottom(at, depth))
        is_through = False
        while not is_through:
            most = limit + 1 - len(hits)
            portion, is_through = yield from judging(at, end, most, meter)
            for at, size, letter in portion:
                if letter is not None and fulfils(letter):
                    hits.append((at, letter.head))
                if len(hits) > limit:  # one more than requested: there are more
                    hits.pop()
                    return Found(hits, hits[-1][0])
                if size is not None:
                    meter.opened(size)
                    if meter.is_spent:
                        return Found(hits, at)
        if end is None:
            return Found(hits, None)
        at, left, reach = end, left - depth, reach * 2
        if left <= 0 or meter.is_spent:
            return Found(hits, at)


def names_step(query: Node, *, limit: int, start: P | None, meter: Meter) -> NamesStep[P]:
    """
    Find the ids of up to `limit` letters that match, after `start`, without their heads.

    Returns None where the filter of the store leaves doubts: `search_step` settles them.
    """
    found: list[tuple[P, str, bool]] = []
    at, left = start, meter.budget.letters
    reach = max(_SHORTEST, limit + 1)  # most searches find nearly all that they look at
    while True:
        depth = min(_stretch(query), left, reach)
        end: P | None = yield Bottom(at, depth)
        found += yield Named(at, end, limit + 1 - len(found))
        if not all(is_sure for _, _, is_sure in found):
            return None
        ids = tuple(id_ for _, id_, _ in found[:limit])
        if len(found) > limit:
            return FoundNames(ids, found[limit - 1][0])
        if end is None:
            return FoundNames(ids, None)
        at, left, reach = end, left - depth, reach * 2
        if left <= 0 or meter.is_spent:
            return FoundNames(ids, at)


def _stretch(query: Node) -> int:
    return max(_SHORTEST, _STRETCH // max(1, weight(query)))


_Portion: TypeAlias = list[tuple[P, int | None, DeadLetter | None]]
"""Letters with their places, and the size of their contents if they were read."""

_Judging: TypeAlias = Generator[Wanted[P], Any, tuple[_Portion[P], bool]]


def _looking(at: P | None, end: P | None, most: int, _: Meter) -> _Judging[P]:
    """Return the next heads, and whether these are the last."""
    letters = yield Heads(at, end, most)
    return [(place, None, letter) for place, letter in letters], len(letters) < most


def _opening(at: P | None, end: P | None, _: int, meter: Meter) -> _Judging[P]:
    """Return the next letters with their contents, and whether these are the last."""
    most = min(PORTION, meter.left_to_open)
    sizes: list[tuple[P, int]] = yield Sizes(at, end, most)
    if not sizes:
        return [], True
    several, total = 0, 0
    for _place, size in sizes:
        total += min(size, CUT)
        if several and total > PORTION_SIZE:
            break
        several += 1
    chosen = sizes[:several]
    letters = dict((yield Contents([place for place, _ in chosen])))
    portion: _Portion[P] = [(place, min(size, CUT), letters.get(place)) for place, size in chosen]
    return portion, several == len(sizes) < most


GroupPlace: TypeAlias = tuple[int, int, datetime, str]
"""Open letters, deaths ever, time of the last death, and fingerprint."""

_CURSOR: Final = re.compile(r"([0-9a-f]{1,15})\.([0-9a-f]{1,15})", re.ASCII)
_OF_GROUPS: Final = re.compile(
    r"([0-9a-f]{1,15})\.([0-9a-f]{1,15})\.([0-9a-f]{1,15})\.(.*)", re.DOTALL
)
_START: Final = datetime.min.replace(tzinfo=UTC)  # no time is before it
_MICROSECOND: Final = timedelta(microseconds=1)


def cursor(dead_at: datetime, seq: int) -> str:
    """Return the place after a letter, by its time of death and its number in the store."""
    return f"{_number(dead_at):x}.{seq:x}"


def place(cursor: str) -> tuple[datetime, int]:
    """Return the place of a cursor. Raises QueryError if it is invalid."""
    found = _CURSOR.fullmatch(cursor)
    try:
        if found is not None:
            return _time(found[1]), int(found[2], 16)
    except OverflowError:
        pass
    raise left_off_nowhere(cursor)


def place_of_group(group: Group) -> GroupPlace:
    """Return the place of a group in lists; stores order groups by this or its end."""
    return group.open, group.total, group.last_seen, group.fingerprint


def group_cursor(group: Group) -> str:
    """Return the place after a group."""
    opened, total, seen, name = place_of_group(group)
    return f"{opened:x}.{total:x}.{_number(seen):x}.{name}"


def group_place(cursor: str) -> GroupPlace:
    """Return the place of a group cursor. Raises QueryError if it is invalid."""
    found = _OF_GROUPS.fullmatch(cursor)
    try:
        if found is not None:
            opened, total, seen, name = found.groups()
            return int(opened, 16), int(total, 16), _time(seen), name
    except OverflowError:
        pass
    raise left_off_nowhere(cursor)


def left_off_nowhere(cursor: str) -> QueryError:
    """Return the error for an invalid cursor."""
    return QueryError(
        f"{cursor[:60]!a} is not a valid cursor: pass `after` as the"
        " last page returned it, or leave it out to start from the beginning"
    )


def _number(time: datetime) -> int:
    return (time - _START) // _MICROSECOND


def _time(number: str) -> datetime:
    return _START + int(number, 16) * _MICROSECOND
