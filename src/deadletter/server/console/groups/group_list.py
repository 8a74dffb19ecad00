"""The list of groups: what broke?"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.deaths import By, series
from deadletter.core.deaths import DeathFilter as Span
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import GroupStatus, State, still_open
from deadletter.core.query.ast import All, Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.query.parse import show
from deadletter.core.text import cut, many
from deadletter.office.deaths import chart_deaths
from deadletter.office.group_versions import versions_of_groups
from deadletter.office.groups import GroupCounts, GroupLine, GroupOrder, GroupPage, count_groups
from deadletter.ports import DeathCounting
from deadletter.server.console import words
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext

from . import sentences

PAGE: Final = 25
"""Groups on one page."""
MOST_SOURCES: Final = 200
"""Mailboxes to narrow the list to."""
HOURS: Final = 24

Tab: TypeAlias = Literal[
    "listed", "new", "regressed", "ongoing", "snoozed", "muted", "resolved", "all"
]
_TABS: Final[tuple[Tab, ...]] = (
    *("listed", "new", "regressed", "ongoing", "snoozed", "muted", "resolved", "all"),
)


class ListRequest(Struct, frozen=True, kw_only=True):
    """What somebody asks the list for."""

    tab: Tab = "listed"
    source: str = ""
    text: str = ""
    order: GroupOrder = GroupOrder.LARGEST
    after: str = ""

    def path(self, **changes: str) -> str:
        """Return the path of this list, with some parameters changed."""
        given = {
            "status": "" if self.tab == "listed" else self.tab,
            "source": self.source,
            "text": self.text,
            "sort": "" if self.order is GroupOrder.LARGEST else self.order.value,
            "after": self.after,
        }
        return path_to("groups", **(given | changes))

    @property
    def is_narrowed(self) -> bool:
        """Return whether the list has only some groups of its tab."""
        return bool(self.source or self.text)


class GroupRow(Struct, frozen=True, kw_only=True):
    """One group of the list, in two lines."""

    fingerprint: str
    path: str
    status: str
    error: str
    text: str
    source: str
    place: str
    trouble: str
    versions: str
    standing: str  # what belongs to the status
    owner: str
    note: str
    open: int
    total: int
    share: str  # of all open letters
    hours: tuple[int, ...] | None  # deaths of the last 24 hours; None: not told apart
    last_seen: datetime
    is_overflow: bool
    is_gone: bool = False  # it is no longer on this page of the list


class TabLink(Struct, frozen=True, kw_only=True):
    """One tab: its name, where it leads, and how many groups it has, if that is known."""

    name: str
    path: str
    count: int | None
    is_current: bool


class GroupList(Struct, frozen=True, kw_only=True):
    """Everything that the list of groups shows."""

    asked: ListRequest
    headline: str
    below: str
    tabs: tuple[TabLink, ...]
    sources: tuple[str, ...]
    rows: tuple[GroupRow, ...]
    rows_url: str  # the part with the same rows, refreshed
    others: int  # groups that belong on this page now and are not among the rows
    total: int  # groups of any status: 0 means that nothing ever died
    resolved: int
    first: str  # path of the first page; empty on it
    next: str  # path of the next page; empty on the last
    left: str  # how many groups there are beyond this page, in words
    has_sparks: bool


async def load_list(
    context: ServerContext, who: Identity, asked: ListRequest, hold: Sequence[str] = ()
) -> GroupList:
    """
    Return what this person sees on a page of the list.

    With `hold`, the rows are these groups in this order, as they are now: a list that is
    refreshed while somebody reads it does not move.
    """
    sources = who.sources if not asked.source else (asked.source,)
    page, counts, letters = await asyncio.gather(
        _page(context, who, asked), _counts(context, who, asked), context.office.letters.counts()
    )
    letters = {name: states for name, states in letters.items() if who.sees(name)}
    opened = _opened(letters)
    lines, others = await _held(context, who, page, hold) if hold else (list(page.groups), 0)
    names = [line.fingerprint for line in lines]
    (sparks, has_sparks), versions = await asyncio.gather(
        _sparks(context, names), versions_of_groups(context.store, names)
    )
    listed = {line.fingerprint for line in page.groups}
    now = context.clock.now()
    rows = tuple(
        _row(
            line,
            opened=opened,
            now=now,
            hours=_hours(line, sparks, now) if has_sparks else None,
            versions=versions.get(line.fingerprint, ()),
            is_gone=line.fingerprint not in listed,
        )
        for line in lines
    )
    here = _opened({name: letters.get(name, {}) for name in sources} if sources else letters)
    return GroupList(
        asked=asked,
        headline=sentences.headline(here, counts.listed),
        below=_below(counts, asked),
        tabs=tuple(_tabs(asked, counts)),
        sources=tuple(sorted(letters)[:MOST_SOURCES]),
        rows=rows,
        rows_url=asked.path(part="rows", hold=",".join(names)),
        others=others,
        total=counts.total,
        resolved=counts.statuses.get(GroupStatus.RESOLVED, 0),
        first=asked.path(after="") if asked.after else "",
        next=asked.path(after=page.after) if page.after else "",
        left=_left(asked, counts, len(page.groups)),
        has_sparks=has_sparks,
    )


async def load_tabs(context: ServerContext, who: Identity, asked: ListRequest) -> GroupList:
    """Return the tabs of the list and its headline, without rows."""
    counts, letters = await asyncio.gather(
        _counts(context, who, asked), context.office.letters.counts()
    )
    letters = {name: states for name, states in letters.items() if who.sees(name)}
    if asked.source:
        letters = {asked.source: letters.get(asked.source, {})}
    return GroupList(
        asked=asked,
        headline=sentences.headline(_opened(letters), counts.listed),
        below=_below(counts, asked),
        tabs=tuple(_tabs(asked, counts)),
        sources=(),
        rows=(),
        rows_url="",
        others=0,
        total=counts.total,
        resolved=counts.statuses.get(GroupStatus.RESOLVED, 0),
        first="",
        next="",
        left="",
        has_sparks=False,
    )


async def _page(context: ServerContext, who: Identity, asked: ListRequest) -> GroupPage:
    if asked.source and not who.sees(asked.source):
        return GroupPage(())
    status = GroupStatus(asked.tab) if asked.tab not in {"listed", "all"} else None
    return await context.office.groups.list(
        source=asked.source or None,
        sources=who.sources,
        status=status,
        everything=asked.tab == "all",
        text=asked.text,
        order=asked.order,
        limit=PAGE,
        after=asked.after or None,
    )


async def _counts(context: ServerContext, who: Identity, asked: ListRequest) -> GroupCounts:
    if not asked.source:
        return await count_groups(context.store, sources=who.sources)
    if not who.sees(asked.source):
        return GroupCounts(listed=0, total=0, statuses={})
    return await count_groups(context.store, sources=(asked.source,))


async def _held(
    context: ServerContext, who: Identity, page: GroupPage, hold: Sequence[str]
) -> tuple[list[GroupLine], int]:
    """Return the lines of groups that a list shows already, and how many others it has now."""
    known = {line.fingerprint: line for line in page.groups}
    lines = []
    for name in dict.fromkeys(hold[:PAGE]):
        line = known.get(name)
        if line is None:  # it moved to another page, or is of another status by now
            with suppress(NotFound, Conflict):  # it is gone
                line = await context.office.groups.get(name, sources=who.sources)
            if line is None or line.fingerprint != name:
                continue
        lines.append(line)
    return lines, len(known.keys() - set(hold))


async def _sparks(
    context: ServerContext, names: Sequence[str]
) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Return the deaths of groups by hour, in one query for all of them."""
    if not isinstance(context.store, DeathCounting):
        return {}, False
    if not names:
        return {}, True
    step = timedelta(hours=1)
    since = context.clock.now() - (HOURS - 1) * step
    chart = await chart_deaths(
        context.store,
        context.clock,
        since=since,
        step=step,
        by=By.GROUP,
        groups=tuple(names),
        most=len(names),
    )
    span = Span(since=chart.since, until=chart.until, step=step)
    return series(chart.counts, span), True


def _hours(
    line: GroupLine, sparks: Mapping[str, tuple[int, ...]], now: datetime
) -> tuple[int, ...] | None:
    """Return the deaths of a group by hour; None if they were counted without their group."""
    hours = sparks.get(line.fingerprint, (0,) * HOURS)
    died_lately = now - line.last_seen < timedelta(hours=HOURS - 1)
    return None if died_lately and not any(hours) else hours


def _row(
    line: GroupLine,
    *,
    opened: int,
    now: datetime,
    hours: tuple[int, ...] | None,
    versions: Sequence[str],
    is_gone: bool,
) -> GroupRow:
    return GroupRow(
        fingerprint=line.fingerprint,
        path=path_to("groups", line.fingerprint),
        status=line.status.value,
        error=sentences.error_of(line),
        text=cut(line.text, sentences.LONGEST),
        source=cut(line.source, sentences.NAME),
        place=sentences.place_of(line.frame),
        trouble=sentences.trouble_of(line.trouble, line.code),
        versions=sentences.versions_told(versions),
        standing=sentences.standing_told(
            line.status, until=line.until, version=line.version, now=now
        ),
        owner=cut(line.owner or "", sentences.NAME),
        note=cut(line.note, sentences.LONGEST),
        open=line.open,
        total=line.total,
        share=words.share(line.open, opened),
        hours=hours,
        last_seen=line.last_seen,
        is_overflow=line.overflow,
        is_gone=is_gone,
    )


def _tabs(asked: ListRequest, counts: GroupCounts) -> list[TabLink]:
    found = []
    for name in _TABS:
        count: int | None
        if asked.text:  # counting what contains a text would read all groups
            count = None
        elif name == "listed":
            count = counts.listed
        elif name == "all":
            count = counts.total
        else:
            count = counts.statuses.get(GroupStatus(name), 0)
        path = asked.path(status="" if name == "listed" else name, after="")
        found.append(
            TabLink(name=name.capitalize(), path=path, count=count, is_current=name == asked.tab)
        )
    return found


def _below(counts: GroupCounts, asked: ListRequest) -> str:
    parts = []
    if asked.source:
        parts.append(f"in {cut(asked.source, sentences.NAME)}")
    parts += [
        f"{n:,} {status}"
        for status in (GroupStatus.NEW, GroupStatus.REGRESSED, GroupStatus.RESOLVED)
        if (n := counts.statuses.get(status, 0))
    ]
    return " · ".join(parts)


def _left(asked: ListRequest, counts: GroupCounts, shown: int) -> str:
    if asked.text or asked.after:
        return ""
    if asked.tab == "listed":
        total = counts.listed
    elif asked.tab == "all":
        total = counts.total
    else:
        total = counts.statuses.get(GroupStatus(asked.tab), 0)
    return f"{shown} of {many(total, 'group')}" if total > shown else ""


def _opened(letters: Mapping[str, Mapping[State, int]]) -> int:
    return sum(still_open(states) for states in letters.values())


def chosen_query(names: Sequence[str]) -> str:
    """Return the search for the open letters of groups."""
    groups = Term("group", Op.IS, tuple(map(literal, names)))
    return show(All((groups, Term("is", Op.IS, ("open",)))))
