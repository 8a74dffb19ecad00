"""What broke, by cause: "412 dead letters" becomes "3 problems"."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deadletter.core.errors import Conflict, NotFound
from deadletter.core.failure import Trouble
from deadletter.core.group_limit import is_overflow
from deadletter.core.grouping import HIDDEN
from deadletter.core.letter import By, Group, GroupStatus, Standing, still_open
from deadletter.core.paging import group_cursor, place_of_group
from deadletter.core.regrouping import merged_into
from deadletter.ports import Clock, LetterStore

LISTED: Final = frozenset(GroupStatus) - HIDDEN


class GroupLine(Struct, frozen=True, kw_only=True):
    """A group as a list shows it; `share` is its part of all open letters."""

    fingerprint: str
    source: str
    error_type: str
    text: str
    frame: str
    trouble: Trouble
    code: str
    status: GroupStatus
    since: datetime | None
    owner: str | None
    note: str
    until: datetime | None
    version: str
    first_seen: datetime
    last_seen: datetime
    open: int
    total: int
    share: float
    overflow: bool = False  # too many different texts: their letters are in one group


class GroupPage(Struct, frozen=True):
    """Some groups, those with most open letters first; `after` continues the list."""

    groups: tuple[GroupLine, ...]
    after: str | None = None


async def list_groups(
    store: LetterStore,
    *,
    source: str | None = None,
    sources: Sequence[str] = (),
    status: GroupStatus | None = None,
    everything: bool = False,
    limit: int = 100,
    after: str | None = None,
) -> GroupPage:
    """
    Groups of like failures, those with most open letters first.

    Those with open letters that are neither snoozed nor muted; all of one status
    if one is asked for; or really all. Of one `source`, or of these `sources`, if
    some are given.
    """
    statuses = None if everything else LISTED
    found = [
        group
        for name in ((source,) if source is not None else sources or (None,))
        for group in await store.groups(
            source=name,
            only_open=not everything and status is None,
            statuses=statuses if status is None else frozenset({status}),
            largest_first=True,
            limit=limit + 1,  # is there more?
            after=after,
        )
    ]
    found.sort(key=place_of_group, reverse=True)
    opened = await _open(store, source)
    return GroupPage(
        tuple(_line(group, opened) for group in found[:limit]),
        group_cursor(found[limit - 1]) if len(found) > limit else None,
    )


async def get_group(
    store: LetterStore, name: str, *, sources: Sequence[str] = ()
) -> Group:
    """
    One group, by its fingerprint or the beginning of it.

    No such group is NotFound, more than one a Conflict naming them. Of other than
    these `sources`, if some are given, there are no groups at all.
    """
    bare = name.strip().removeprefix("group:").removesuffix("*")
    if not bare:
        raise NotFound("say which group: `dlq groups` shows their names")
    found = [
        group
        for source in sources or (None,)
        for group in await store.groups(
            source=source, only_open=False, named=bare, limit=4
        )
    ]
    exact = [group for group in found if group.fingerprint == bare]
    if not found:
        rules = {} if sources else await store.group_rules()
        if bare in rules and (target := merged_into(bare, rules)) != bare:
            return await get_group(store, target)
        gone = [] if sources else await store.audit(target=bare)
        if became := [one.detail for one in gone if one.action == "regroup"]:
            raise NotFound(f"group {bare} is gone: {', '.join(became[-3:])}")
        raise NotFound(f"there is no group {bare[:40]!r}; `dlq groups --all` shows all")
    if len(found) > 1 and not exact:
        some = ", ".join(group.fingerprint for group in found[:3])
        raise Conflict(f"several groups begin with {bare}: {some}; give more of it")
    return (exact or found)[0]


async def line_of(
    store: LetterStore, name: str, *, sources: Sequence[str] = ()
) -> GroupLine:
    """One group as a list shows it."""
    group = await get_group(store, name, sources=sources)
    return _line(group, await _open(store, None))


async def say(
    store: LetterStore,
    clock: Clock,
    name: str,
    status: GroupStatus,
    by: By,
    *,
    owner: str | None = None,
    until: datetime | None = None,
    version: str = "",
) -> Group:
    """
    Say how a group stands; who has it stays unless another `owner` is given.

    The reason is kept as the group's note, and without one the note stays. A
    resolved group becomes `regressed` by itself when a letter dies of it later,
    in that `version` or a newer one if one is given.
    """
    group = await get_group(store, name)
    standing = Standing(
        status=status,
        since=clock.now(),
        owner=group.standing.owner if owner is None else owner.strip() or None,
        note=by.reason.strip() or group.standing.note,
        until=until,
        version=version.strip(),
    )
    await store.set_group(group.fingerprint, standing, by)
    return replace(group, standing=standing)


async def _open(store: LetterStore, source: str | None) -> int:
    counts = await store.counts()
    return sum(
        still_open(states) for name, states in counts.items() if source in (None, name)
    )


def _line(group: Group, everything: int) -> GroupLine:
    standing = group.standing
    return GroupLine(
        fingerprint=group.fingerprint,
        source=group.source,
        error_type=group.error_type,
        text=group.text,
        frame=group.frame,
        trouble=group.trouble,
        code=group.code,
        status=standing.status,
        since=standing.since,
        owner=standing.owner,
        note=standing.note,
        until=standing.until,
        version=standing.version,
        first_seen=group.first_seen,
        last_seen=group.last_seen,
        open=group.open,
        total=group.total,
        share=group.open / everything if everything else 0.0,
        overflow=is_overflow(group.fingerprint),
    )
