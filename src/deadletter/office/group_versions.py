"""
Versions of the application in which messages died of a group, and whether a fix is seen.

Nothing here says that a group is fixed. It says which versions there are, in which of them
messages died of the group, and which letters are from before.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cmp_to_key
from typing import Final

from msgspec import Struct, structs

from deadletter.core.deaths import FirstSeen, VersionDeaths
from deadletter.core.letter import Group, GroupStatus, LetterHead
from deadletter.core.query.ast import All, Node, Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.query.parse import show
from deadletter.core.query.versions import Seen, compare
from deadletter.ports import DeathCounting, LetterStore

from .groups import get_group
from .workers import RunningVersion, live_workers, running_versions

_EVER: Final = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))
_MOST: Final = 1_000  # versions of all mailboxes that are looked at
_NEWEST: Final = 200  # letters of a group whose deaths are not all counted
_SHOWN: Final = 20  # versions of a group, and newer ones
_AFTER_FIX: Final = frozenset({GroupStatus.RESOLVED, GroupStatus.REGRESSED})


class VersionLine(Struct, frozen=True, kw_only=True):
    """The deaths of a group in one version; `first` and `last` to the step of their counter."""

    version: str  # empty: unknown
    deaths: int
    first: datetime
    last: datetime


class NewerVersion(Struct, frozen=True):
    """
    A version in which no message died of a group, and when it was first seen at its mailbox.

    It is seen when another message dies in it there, or when a worker says that it runs.
    """

    version: str
    first_seen: datetime


class GroupVersions(Struct, frozen=True, kw_only=True):
    """
    The versions of a group, newest first.

    `newer` are those that its mailbox has seen and that are newer than all in which messages
    died of the group. `fix` is the version that is believed to have the fix: the one the group
    was resolved in, or the oldest newer one. Of the deaths, `since_fix` were in that version or
    a newer one. `before_fix` is a search for open letters of older versions; empty without a
    fix.

    `running` are the versions that its workers run now, and `workers` how many were heard of;
    `knows_workers` is False in an office that does not keep this.

    In a flood, some deaths are counted without their group. These are `uncounted`, and the
    versions of the newest letters stand for them.
    """

    group: str
    versions: tuple[VersionLine, ...]
    newer: tuple[NewerVersion, ...] = ()
    fix: str = ""
    since_fix: int = 0
    before_fix: str = ""
    running: tuple[RunningVersion, ...] = ()
    workers: int = 0
    knows_workers: bool = False
    uncounted: int = 0
    is_counted: bool = True  # False: this office does not count deaths over time


async def group_versions(
    store: LetterStore, name: str, *, sources: Sequence[str] = ()
) -> GroupVersions:
    """Return the versions in which messages died of a group, and those that came after."""
    group = await get_group(store, name, sources=sources)
    if not isinstance(store, DeathCounting):
        return GroupVersions(group=group.fingerprint, versions=(), is_counted=False)
    deaths = await store.deaths_by_version([group.fingerprint])
    counted = sum(one.n for one in deaths)
    if counted < group.total:
        own = Term("group", Op.IS, (literal(group.fingerprint),))
        deaths = with_letters(deaths, (await store.find(own, limit=_NEWEST)).heads)
    seen = await store.versions(*_EVER, limit=_MOST)
    seen = [one for one in seen if one.source == group.source]
    workers = await live_workers(store, group.source)
    running = None if workers is None else running_versions(workers)
    return judge_versions(group, deaths, seen, counted=counted, running=running)


async def versions_of_groups(
    store: LetterStore, names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the known versions in which messages died of groups, the latest death first."""
    if not names or not isinstance(store, DeathCounting):
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for one in await store.deaths_by_version(names):
        if one.version:
            found[one.group] = (*found.get(one.group, ()), one.version)
    return found


def judge_versions(
    group: Group,
    deaths: Sequence[VersionDeaths],
    seen: Sequence[FirstSeen],
    *,
    counted: int | None = None,
    running: Sequence[RunningVersion] | None = None,
) -> GroupVersions:
    """
    Return what the deaths of a group in its versions show.

    `counted` is how many of its deaths are counted with their version; by default, all.
    `running` is what its workers run now; None if that is not known.
    """
    known: Seen = {(one.source, one.version): one.at for one in seen}
    lines = [
        VersionLine(version=one.version, deaths=one.n, first=one.first, last=one.last)
        for one in deaths
    ]
    lines = newest_first(lines, group.source, known)
    died_in = [line.version for line in lines if line.version]
    first = {one.version: one.at for one in seen}
    for one in running or ():
        if one.version:
            first[one.version] = min(one.since, first.get(one.version, one.since))
    newer = [
        NewerVersion(version, at)
        for version, at in first.items()
        if died_in and _is_newer(version, died_in, group.source, known)
    ]
    newer.sort(key=lambda one: one.first_seen, reverse=True)
    standing = group.standing
    fix = standing.version if standing.status in _AFTER_FIX else ""
    if not fix and newer:
        fix = newer[-1].version

    def has_fix(version: str) -> bool:
        return bool(fix) and (
            version == fix or (compare(version, fix, group.source, known) or 0) > 0
        )

    return GroupVersions(
        group=group.fingerprint,
        versions=tuple(lines[:_SHOWN]),
        newer=tuple(newer[:_SHOWN]),
        fix=fix,
        since_fix=sum(line.deaths for line in lines if has_fix(line.version)),
        before_fix=show(letters_before(group.fingerprint, fix)) if fix else "",
        running=tuple(
            structs.replace(one, has_fix=has_fix(one.version)) for one in (running or ())[:_SHOWN]
        ),
        workers=sum(one.workers for one in running or ()),
        knows_workers=running is not None,
        uncounted=0 if counted is None else max(group.total - counted, 0),
    )


def with_letters(
    deaths: Sequence[VersionDeaths], heads: Sequence[LetterHead]
) -> list[VersionDeaths]:
    """Return deaths by version, with those that these letters show and that were not counted."""
    found = {one.version: one for one in deaths}
    by_version: defaultdict[str, list[datetime]] = defaultdict(list)
    for head in heads:
        by_version[head.version].append(head.dead_at)
    for version, times in by_version.items():
        known = found.get(version)
        shown = VersionDeaths(
            group=heads[0].fingerprint,
            version=version,
            n=len(times),
            first=min(times),
            last=max(times),
        )
        if known is not None:
            shown = structs.replace(
                known, n=max(known.n, shown.n), last=max(known.last, shown.last)
            )
        found[version] = shown
    return list(found.values())


def letters_before(name: str, version: str) -> Node:
    """Return the search for open letters of a group that died in a version before this one."""
    return All(
        (
            Term("group", Op.IS, (literal(name),)),
            Term("is", Op.IS, ("open",)),
            Term("version", Op.LT, (literal(version),)),
        )
    )


def newest_first(lines: Sequence[VersionLine], source: str, seen: Seen) -> list[VersionLine]:
    """Return versions in their order, where that is known; unknown versions come last."""

    def older(one: VersionLine, other: VersionLine) -> int:
        if bool(one.version) != bool(other.version):
            return 1 if other.version else -1
        order = compare(one.version, other.version, source, seen)
        if order is None:
            order = (one.last > other.last) - (one.last < other.last)
        return -order

    return sorted(lines, key=cmp_to_key(older))


def _is_newer(version: str, than: Sequence[str], source: str, seen: Seen) -> bool:
    return all((compare(version, one, source, seen) or 0) > 0 for one in than)
