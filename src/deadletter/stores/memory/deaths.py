"""Deaths over time in memory."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime

from deadletter.core.deaths import (
    By,
    Counters,
    DeathCount,
    DeathFilter,
    Key,
    VersionDeaths,
    added_up,
    due_before,
    floor,
    next_step,
    when,
)

_PLACE = {By.SOURCE: 2, By.GROUP: 3, By.VERSION: 4}  # in a key


def read(counters: Counters, request: DeathFilter) -> list[DeathCount]:
    """Return deaths over time."""
    start, end = request.span
    by_name: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for key, n in counters.items():
        _, at, source, group, _ = key
        if not start <= at < end:
            continue
        if source not in (request.sources or {source}) or group not in (request.groups or {group}):
            continue
        name = "" if request.by is By.NONE else str(key[_PLACE[request.by]])
        by_name[name][floor(at, request.seconds)] += n
    order = sorted((name for name in by_name if name), key=lambda n: (-by_name[n].total(), n))
    found: Counter[tuple[int, str]] = Counter()
    for name, times in by_name.items():
        shown = name if name in order[: request.most] else ""
        for at, n in times.items():
            found[at, shown] += n
    return [DeathCount(when(at), name, n) for (at, name), n in sorted(found.items())]


def by_version(counters: Counters, groups: Sequence[str]) -> list[VersionDeaths]:
    """Return the deaths of groups by version."""
    found: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for (_, at, _, group, version), n in counters.items():
        if group in groups:
            found[group, version][at] += n
    counts = [
        VersionDeaths(
            group=group,
            version=version,
            n=times.total(),
            first=when(min(times)),
            last=when(max(times)),
        )
        for (group, version), times in found.items()
    ]
    return sorted(counts, key=lambda one: (one.last, one.first, one.version), reverse=True)


def tidy(counters: Counter[Key], now: datetime) -> bool:
    """Add up the counters of one step; return whether there were any."""
    for step, before in due_before(now).items():
        times = [key[1] for key in counters if key[0] == step and key[1] < before]
        if times:
            start = floor(min(times), next_step(step))
            end = start + next_step(step)
            some = {k: n for k, n in counters.items() if k[0] == step and start <= k[1] < end}
            for key in some:
                del counters[key]
            counters.update(added_up(some))
            return True
    return False
