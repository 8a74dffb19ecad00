"""
Deaths over time: counters by step, mailbox, group and version, and what charts show of them.

A death is counted in the transaction that files its letter, in a step of five minutes, or of an
hour or a day if it is old. Later, a chore adds steps up: five minutes are kept for 49 hours, hours
for 32 days, days for good. Every death is in exactly one counter, so sums are exact.

A flood may bring any number of groups. Each process gives counters of their own to the first
groups of a step, and counts the rest by mailbox and version alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from .errors import ConfigError
from .letter import LetterHead
from .seals import NAMED

FINE: Final = 300
HOUR: Final = 3_600
DAY: Final = 86_400
STEPS: Final = (FINE, HOUR, DAY)
"""Seconds in a step."""

KEPT: Final = {FINE: timedelta(hours=49), HOUR: timedelta(days=32)}
"""How long counters of a step are kept, before they are added up."""

GROUPS_PER_STEP: Final = 24
"""The most counters of a step that name a group, for each process."""
COUNTERS_PER_STEP: Final = 36
"""The most counters of a step, apart from one for each mailbox."""

MOST_POINTS: Final = 2_000
"""The most steps of one chart."""

_REMEMBERED: Final = 64  # steps whose counters are remembered
_BARS: Final = "▁▂▃▄▅▆▇█"
# Steps are offered a little shorter than they are kept.
_MARGIN: Final = {FINE: timedelta(hours=1), HOUR: timedelta(days=1)}

Key: TypeAlias = tuple[int, int, str, str, str]
"""A counter: step and its beginning, both in seconds, source, fingerprint, version."""

Names: TypeAlias = tuple[str, str, str]
"""The source, fingerprint and version of a counter."""

Counters: TypeAlias = Mapping[Key, int]


class By(StrEnum):
    """What the deaths of a chart are told apart by."""

    NONE = "none"
    SOURCE = "source"
    GROUP = "group"
    VERSION = "version"


class DeathCount(Struct, frozen=True, gc=False):
    """
    The deaths of one name in the step that begins at `at`.

    The name is a mailbox, a fingerprint or a version. An empty name stands for all others,
    or for a version that is unknown.
    """

    at: datetime
    name: str
    n: int


class DeathFilter(Struct, frozen=True, kw_only=True):
    """
    A request for deaths over time.

    Names beyond the `most` with most deaths are counted together, under an empty name.
    """

    since: datetime
    until: datetime
    step: timedelta
    by: By = By.NONE
    sources: tuple[str, ...] = ()  # empty: all
    groups: tuple[str, ...] = ()  # empty: all
    most: int = 100

    @property
    def span(self) -> tuple[int, int]:
        """The seconds from which and before which counters belong to it."""
        return floor(int(self.since.timestamp()), self.seconds), int(self.until.timestamp())

    @property
    def seconds(self) -> int:
        """The step in seconds."""
        return int(self.step.total_seconds())


class VersionDeaths(Struct, frozen=True, kw_only=True, gc=False):
    """
    The deaths of a group in one version of the application; its version may be unknown, "".

    `first` and `last` are the beginnings of the steps in which they were counted.
    """

    group: str
    version: str
    n: int
    first: datetime
    last: datetime


class FirstSeen(Struct, frozen=True):
    """When a version of an application was first seen at a mailbox."""

    source: str
    version: str
    at: datetime


class DeathLimit:
    """The limit of counters in a step; it remembers those of the latest steps."""

    def __init__(self, groups: int = GROUPS_PER_STEP, counters: int = COUNTERS_PER_STEP) -> None:
        self._groups = groups
        self._counters = counters
        self._steps: dict[int, set[Names]] = {}

    def counted(self, deaths: Iterable[LetterHead], now: datetime) -> Counters:
        """Return what to add to which counters for these deaths."""
        due = due_before(now)
        hours, days = due[FINE], due[HOUR]
        known, found = self._steps, dict[Key, int]()
        # One loop with little called: it runs for every letter that is filed.
        for head in deaths:
            at = int(head.dead_at.timestamp())
            step = FINE if at >= hours else HOUR if at >= days else DAY
            at -= at % step
            names = (head.source, head.fingerprint, head.version)
            there = known.get(at)
            if there is None:
                known[at] = {names}
            elif names not in there:
                names = self._admitted(at, names)
            key = (step, at, *names)
            found[key] = found[key] + 1 if key in found else 1
        while len(known) > _REMEMBERED:
            del known[next(iter(known))]
        return found

    def admitted(self, key: Key) -> Key:
        """Return the counter that deaths of this one are added to."""
        return key[0], key[1], *self._admitted(key[1], key[2:])

    def _admitted(self, at: int, names: Names) -> Names:
        source, _, version = names
        known = self._steps.setdefault(at, set())
        if names in known:
            return names
        if len(known) < self._groups:
            known.add(names)
            return names
        rest = source, "", version
        if rest in known or len(known) < self._counters:
            known.add(rest)
            return rest
        return source, "", ""


def floor(at: int, step: int) -> int:
    """Return the beginning of the step that a time is in, both in seconds."""
    return at // step * step


def when(at: int) -> datetime:
    """Return the time of a counter."""
    return datetime.fromtimestamp(at, UTC)


def next_step(step: int) -> int:
    """Return the step that counters of this one are added up to."""
    return HOUR if step == FINE else DAY


def due_before(now: datetime) -> dict[int, int]:
    """Return for each step that is not kept for good the end of what is to be added up."""
    return {
        step: floor(int((now - kept).timestamp()), next_step(step)) for step, kept in KEPT.items()
    }


def added_up(counters: Counters) -> Counters:
    """
    Return counters of one step as those of the next.

    Of many groups, those with most deaths keep a counter of their own.
    """
    sums: Counter[Key] = Counter()
    for (step, at, source, fingerprint, version), n in counters.items():
        coarse = next_step(step)
        sums[coarse, floor(at, coarse), source, fingerprint, version] += n
    by_step: defaultdict[tuple[int, int], list[tuple[Key, int]]] = defaultdict(list)
    for key, n in sorted(sums.items(), key=lambda one: (-one[1], one[0])):
        by_step[key[:2]].append((key, n))
    found: Counter[Key] = Counter()
    for some in by_step.values():
        limit = DeathLimit()
        for key, n in some:
            found[limit.admitted(key)] += n
    return found


def renamed(counters: Counters, names: Mapping[str, str]) -> Counter[Key]:
    """Return counters with other names of groups."""
    found: Counter[Key] = Counter()
    for (step, at, source, group, version), n in counters.items():
        found[step, at, source, names.get(group, group), version] += n
    return found


def check_request(request: DeathFilter, now: datetime) -> None:
    """Reject steps that are not counted, charts that are too large, and spans without an end."""
    step, seconds = request.step, request.seconds
    if seconds not in STEPS or step != timedelta(seconds=seconds):
        raise ConfigError(f"`step` must be 5m, 1h or 1d, got {step.total_seconds():g} seconds")
    if request.until <= request.since:
        raise ConfigError(
            f"`until` must be after `since`, got {request.since.isoformat()} to"
            f" {request.until.isoformat()}"
        )
    points = (request.until - request.since) / step
    if points > MOST_POINTS:
        raise ConfigError(
            f"a chart has up to {MOST_POINTS:,} steps, but this span has {int(points):,}:"
            " choose a longer step or a shorter span"
        )
    kept = KEPT.get(seconds)
    if kept is not None and request.since < now - kept + _MARGIN[seconds]:
        span = f"{48} hours" if seconds == FINE else f"{31} days"
        longer = "1h or 1d" if seconds == FINE else "1d"
        raise ConfigError(
            f"deaths older than {span} are not counted in steps this short: use a step of"
            f" {longer}, or a later `since`"
        )


def step_for(span: timedelta, age: timedelta) -> timedelta:
    """Return the step for a chart of a span that began this long ago."""
    if span <= timedelta(hours=25) and age <= KEPT[FINE] - _MARGIN[FINE]:
        return timedelta(seconds=FINE)
    if age <= KEPT[HOUR] - _MARGIN[HOUR]:
        return timedelta(seconds=HOUR)
    return timedelta(seconds=DAY)


def series(counts: Iterable[DeathCount], request: DeathFilter) -> dict[str, tuple[int, ...]]:
    """Return the numbers of each name by step, with zeros; most deaths first, others last."""
    start, end = request.span
    length = max(-(-(end - start) // request.seconds), 0)
    found: defaultdict[str, list[int]] = defaultdict(lambda: [0] * length)
    for one in counts:
        place = (int(one.at.timestamp()) - start) // request.seconds
        if 0 <= place < length:
            found[one.name][place] += one.n
    order = sorted(found, key=lambda name: (not name, -sum(found[name]), name))
    return {name: tuple(found[name]) for name in order}


def told(numbers: Sequence[int], unit: str = "an hour") -> str:
    """Return what numbers over time say, such as `3 to 120 an hour, now 31`."""
    if not any(numbers):
        return f"none {unit}"
    least, most, now = min(numbers), max(numbers), numbers[-1]
    span = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    return f"{span} {unit}, now {now:,}"


def sparkline(numbers: Sequence[int]) -> str:
    """Return numbers as one line of bars, the largest one full; none is the lowest."""
    most = max(numbers, default=0)
    return "".join(
        [_BARS[-(-n * (len(_BARS) - 1) // most) if n > 0 else 0] for n in numbers]
        if most
        else [_BARS[0]] * len(numbers)
    )


def uncounted(
    counted: Mapping[tuple[int, str], int], needed: Mapping[tuple[int, str], int]
) -> list[str]:
    """
    Return one sentence for each day on which fewer deaths are counted than letters died last.

    Deaths of purged letters, and earlier deaths of letters that died again, are counted as
    well, and no letter shows them: so there may be more, never fewer.
    """
    missing = [key for key, n in needed.items() if counted.get(key, 0) < n]
    return [
        f"{counted.get((day, source), 0):,} deaths of {source} are counted on"
        f" {when(day):%Y-%m-%d}, but {needed[day, source]:,} letters died then"
        for day, source in sorted(missing)[:NAMED]
    ]
