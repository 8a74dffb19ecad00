"""One group: why, since when, is it fixed, what to do."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.deaths import By, floor, when
from deadletter.core.grouping import is_overflow, merged_into
from deadletter.core.letter import AuditEntry, DeadLetter, Group, GroupStatus, LetterHead, State
from deadletter.core.query import parse
from deadletter.core.query.ast import All, Node, Op, Term
from deadletter.core.query.fields import instant, literal
from deadletter.core.query.parse import show
from deadletter.core.text import cut, many
from deadletter.office.audit import AuditFilter, latest_entries
from deadletter.office.deaths import DeathChart, Mark, MarkKind, chart_deaths
from deadletter.office.groups import RuleLine, get_group
from deadletter.ports import DeathCounting
from deadletter.server.console import words
from deadletter.server.console.charts import SERIES, ChartMark, Plot, Series
from deadletter.server.console.pages import path_to
from deadletter.server.console.replays.replay_list import ReplayRow, replays_of
from deadletter.server.console.stacks import Trace, trace_of
from deadletter.server.context import ServerContext
from deadletter.server.search import Searching

from . import sentences
from .common import Common, Texts
from .fix_panel import FixPanel, judge

Part: TypeAlias = Literal["head", "fixed", "letters", "replays", "acts"]
COUNTED_AT_ONCE: Final = 500
"""Open letters of a group up to which those from before a fix are counted with the page."""
LETTERS: Final = 8
"""The newest letters that are shown."""
_ACTS: Final = 12
_ID: Final = 22  # characters of the id of a message
_RULES: Final = 20
_NOTE: Final = 2_000  # characters
_TEXT: Final = 700

Span: TypeAlias = Literal["6h", "24h", "7d", "31d", "1y"]
_SPANS: Final[dict[Span, tuple[timedelta, timedelta]]] = {
    "6h": (timedelta(hours=6), timedelta(minutes=5)),
    "24h": (timedelta(hours=24), timedelta(hours=1)),
    "7d": (timedelta(days=7), timedelta(hours=1)),
    "31d": (timedelta(days=30), timedelta(days=1)),
    "1y": (timedelta(days=365), timedelta(days=1)),
}


class GroupHead(Struct, frozen=True, kw_only=True):
    """What the group is, and how it stands."""

    fingerprint: str
    path: str
    status: str
    error: str
    text: str
    source: str
    place: str
    trouble: str
    standing: str
    since: datetime | None
    owner: str
    note: str
    open: int
    total: int
    share: str
    first_seen: datetime
    last_seen: datetime
    is_overflow: bool
    can_reopen: bool


class LetterRow(Struct, frozen=True, kw_only=True):
    """One of the newest letters."""

    id: str
    path: str
    state: str
    message: str
    key: str
    version: str
    attempts: int
    replays: int
    dead_at: datetime


class ChartRow(Struct, frozen=True, kw_only=True):
    """One step of the chart, as a row of its table."""

    at: datetime
    path: str
    numbers: tuple[int, ...]
    total: int


class Chart(Struct, frozen=True, kw_only=True):
    """Deaths of a group over time, by version; without a plot they are not counted."""

    span: Span
    spans: tuple[tuple[str, str, bool], ...]  # name, path, is the one shown
    url: str
    plot: Plot | None = None
    rows: tuple[ChartRow, ...] = ()


class Rule(Struct, frozen=True, kw_only=True):
    """A merge or a split that this group has to do with, and the path that undoes it."""

    text: str
    other: str
    other_path: str
    by: str
    undo: str


class HeadPart(Struct, frozen=True, kw_only=True):
    """The head of the page, by itself."""

    head: GroupHead
    url: str


class FixPart(Struct, frozen=True, kw_only=True):
    """The panel about a fix, by itself."""

    fixed: FixPanel
    url: str


class ChartPart(Struct, frozen=True, kw_only=True):
    """The chart of deaths, by itself."""

    chart: Chart


class Letters(Struct, frozen=True, kw_only=True):
    """The newest letters of the group, and where more of them are."""

    states: tuple[tuple[str, int], ...]
    count: int  # of any state
    rows: tuple[LetterRow, ...]
    path: str
    compare: str  # the path of a comparison; empty for one letter


class LettersPart(Struct, frozen=True, kw_only=True):
    """The newest letters, by themselves."""

    letters: Letters
    url: str


class ReplaysPart(Struct, frozen=True, kw_only=True):
    """The replays of the group, by themselves."""

    replays: tuple[ReplayRow, ...]
    url: str


class ActsPart(Struct, frozen=True, kw_only=True):
    """Who did what with the group, by itself."""

    acts: tuple[AuditEntry, ...]
    url: str


class Page(Struct, frozen=True, kw_only=True):
    """Everything that the page of a group shows."""

    head: GroupHead
    fixed: FixPanel
    chart: Chart
    newest: LetterRow | None
    trace: Trace
    where: str  # how the newest letter died, in words
    letters: Letters
    plan: str  # the path of a replay of all open letters; empty if there are none
    rules: tuple[Rule, ...]
    replays: tuple[ReplayRow, ...]
    acts: tuple[AuditEntry, ...]
    shows_acts: bool
    url: str
    common: Common | None = None  # loaded as a part, unless it is asked for with the page
    texts: Texts | None = None


async def find(context: ServerContext, who: Identity, name: str) -> Group:
    """Return a group that this person sees; one that was merged leads to where it went."""
    group = await get_group(context.store, name, sources=who.sources)
    if sum(group.counts.values()):
        return group
    rules = await context.store.group_rules()
    target = merged_into(group.fingerprint, rules)
    if target == group.fingerprint:
        return group
    return await get_group(context.store, target, sources=who.sources)


async def load_page(
    context: ServerContext, who: Identity, searching: Searching, group: Group, span: Span | None
) -> Page:
    """Return what this person sees of a group."""
    head, fixed, chart, letters = await asyncio.gather(
        load_head(context, who, group),
        load_fix(context, who, searching, group, at_once=False),
        load_chart(context, who, group, span),
        load_letters(searching, group),
    )
    newest, rules, replays, acts = await asyncio.gather(
        _newest(context, group),
        context.office.groups.rules(sources=who.sources),
        replays_of(context, who, group.fingerprint),
        load_acts(context, who, group),
    )
    return Page(
        head=head,
        fixed=fixed,
        chart=chart,
        newest=_row(newest.head) if newest else None,
        trace=trace_of(_stack(newest) if newest else ""),
        where=_where(newest, context.clock.now()) if newest else "",
        letters=letters,
        plan=path_to("replays", "new", q=open_query(group.fingerprint)) if group.open else "",
        rules=tuple(_rules(rules, group.fingerprint)),
        replays=replays,
        acts=acts,
        shows_acts=not who.sources,
        url=path_to("groups", group.fingerprint),
    )


async def load_part(
    context: ServerContext, who: Identity, searching: Searching, group: Group, part: Part
) -> Struct:
    """Return one part of the page, and nothing that the others need."""
    url = path_to("groups", group.fingerprint)
    match part:
        case "head":
            return HeadPart(head=await load_head(context, who, group), url=url)
        case "fixed":
            return FixPart(fixed=await load_fix(context, who, searching, group), url=url)
        case "letters":
            return LettersPart(letters=await load_letters(searching, group), url=url)
        case "replays":
            replays = await replays_of(context, who, group.fingerprint)
            return ReplaysPart(replays=replays, url=url)
        case "acts":
            return ActsPart(acts=await load_acts(context, who, group), url=url)


async def load_head(context: ServerContext, who: Identity, group: Group) -> GroupHead:
    """Return what a group is, and how it stands."""
    counts = await context.office.letters.counts()
    opened = sum(
        n
        for name, states in counts.items()
        if who.sees(name)
        for state, n in states.items()
        if state in _OPEN
    )
    standing, now = group.standing, context.clock.now()
    return GroupHead(
        fingerprint=group.fingerprint,
        path=path_to("groups", group.fingerprint),
        status=standing.status.value,
        error=sentences.error_of(group),
        text=cut(group.text, _TEXT),
        source=cut(group.source, sentences.NAME),
        place=sentences.place_of(group.frame),
        trouble=sentences.trouble_of(group.trouble, group.code),
        standing=sentences.standing_told(
            standing.status, until=standing.until, version=standing.version, now=now
        ),
        since=standing.since,
        owner=cut(standing.owner or "", sentences.NAME),
        note=cut(standing.note, _NOTE),
        open=group.open,
        total=group.total,
        share=words.share(group.open, opened),
        first_seen=group.first_seen,
        last_seen=group.last_seen,
        is_overflow=is_overflow(group.fingerprint),
        can_reopen=standing.status
        in {GroupStatus.RESOLVED, GroupStatus.SNOOZED, GroupStatus.MUTED},
    )


async def load_fix(
    context: ServerContext,
    who: Identity,
    searching: Searching,
    group: Group,
    *,
    at_once: bool = True,
) -> FixPanel:
    """
    Return what is known about a fix; the letters from before it are counted now.

    Unless it has to be `at_once`, counting many letters is left to the part of the page.
    """
    versions = await context.office.groups.versions(group.fingerprint, sources=who.sources)
    before = None
    is_counted = at_once or group.open <= COUNTED_AT_ONCE
    if versions.before_fix and is_counted:
        before = await searching.count(parse(versions.before_fix))
    return judge(group, versions, before=before, is_counted=is_counted, now=context.clock.now())


async def load_letters(searching: Searching, group: Group) -> Letters:
    """Return the newest letters of a group."""
    own = term(group.fingerprint)
    page = await searching.search(own, limit=LETTERS, after=None)
    rows = tuple(map(_row, page.heads))
    compare = ""
    if len(rows) > 1:
        compare = path_to("letters", rows[0].id, "compare", **{"with": rows[-1].id})
    return Letters(
        states=tuple((state.value, n) for state, n in sorted(group.counts.items()) if n),
        count=sum(group.counts.values()),
        rows=rows,
        path=path_to("letters", q=show(own)),
        compare=compare,
    )


async def load_chart(
    context: ServerContext, who: Identity, group: Group, span: Span | None
) -> Chart:
    """Return the deaths of a group; by default in the shortest span that has any."""
    now = context.clock.now()
    shown = span or _span_with(now - group.last_seen)
    url = path_to("groups", group.fingerprint)
    spans = tuple((name, f"{url}?range={name}#deaths-title", name == shown) for name in _SPANS)
    if not isinstance(context.store, DeathCounting):
        return Chart(span=shown, spans=spans, url=url)
    length, step = _SPANS[shown]
    since = when(floor(int((now - length + step).timestamp()), int(step.total_seconds())))
    chart = await chart_deaths(
        context.store,
        context.clock,
        since=since,
        step=step,
        by=By.VERSION,
        groups=(group.fingerprint,),
        most=SERIES - 1,
    )
    marks = await context.office.marks(
        since=since,
        until=now,
        sources=(group.source,),
        owner=who.principal if who.sources else None,
    )
    plot = Plot(
        id="by-version",
        title=f"Deaths of the last {_LENGTHS[shown]} by version",
        since=since,
        step=step,
        series=tuple(_series(chart)),
        marks=tuple(_marks(marks, group.fingerprint)),
    )
    return Chart(span=shown, spans=spans, url=url, plot=plot, rows=tuple(_chart_rows(plot, group)))


_LENGTHS: Final[dict[Span, str]] = {
    "6h": "6 hours",
    "24h": "24 hours",
    "7d": "7 days",
    "31d": "30 days",
    "1y": "year",
}
_OPEN: Final = frozenset({State.PENDING, State.REVIEWED, State.QUARANTINED})


def term(name: str) -> Node:
    """Return the search for all letters of a group."""
    return Term("group", Op.IS, (literal(name),))


def open_query(name: str) -> str:
    """Return the search for open letters of a group, as a person would type it."""
    return show(All((term(name), Term("is", Op.IS, ("open",)))))


def _span_with(age: timedelta) -> Span:
    for name, (length, _) in _SPANS.items():
        if name != "6h" and age < length:
            return name
    return "1y"


def _series(chart: DeathChart) -> list[Series]:
    found = chart.series()
    return [
        Series(
            name=cut(name, sentences.NAME) if name else "no version, or others",
            numbers=numbers,
            look=look if name else SERIES,
        )
        for look, (name, numbers) in enumerate(found.items(), 1)
    ]


def _marks(marks: Sequence[Mark], name: str) -> list[ChartMark]:
    """Return what happened at the mailbox; of replays, those of this group."""
    return [
        ChartMark(
            kind=mark.kind.value,
            at=mark.at,
            until=mark.until,
            word=cut(mark.name, 20) if mark.kind is MarkKind.VERSION else mark.kind.value,
            text=mark.text,
        )
        for mark in marks
        if mark.kind is not MarkKind.REPLAY or name in mark.text
    ]


def _chart_rows(plot: Plot, group: Group) -> list[ChartRow]:
    """Return the spans with deaths, latest first, each with a link to letters that died then."""
    rows = []
    for row in reversed(plot.table):
        numbers = tuple(n or 0 for n in row.numbers)
        if any(numbers):
            query = All(
                (
                    term(group.fingerprint),
                    Term("dead", Op.GE, (instant(row.at),)),
                    Term("dead", Op.LT, (instant(row.until),)),
                )
            )
            path = path_to("letters", q=show(query))
            rows.append(ChartRow(at=row.at, path=path, numbers=numbers, total=sum(numbers)))
    return rows


async def _newest(context: ServerContext, group: Group) -> DeadLetter | None:
    page = await context.store.find(term(group.fingerprint), limit=1)
    letters = await context.store.get([head.id for head in page.heads])
    return letters[0] if letters else None


def _stack(letter: DeadLetter) -> str:
    story = letter.story() if letter.history else []
    return next((one.stack for one in reversed(story) if one.stack), "")


def _where(letter: DeadLetter, now: datetime) -> str:
    head = letter.head
    parts = [f"Died {words.ago(head.dead_at, now)}"]
    longest = 40
    if head.attempts:
        parts.append(f"after {many(head.attempts, 'attempt')}")
    if head.consumer:
        parts.append(f"in {cut(head.consumer, longest)}")
    if head.version:
        parts.append(f"of version {cut(head.version, longest)}")
    return " ".join(parts)


def _row(head: LetterHead) -> LetterRow:
    return LetterRow(
        id=head.id,
        path=path_to("letters", head.id, **{"in": show(term(head.fingerprint))}),
        state=head.state.value,
        message=_short(head.message_id),
        key=cut(head.key or "", 60),
        version=cut(head.version, 60),
        attempts=head.attempts,
        replays=head.replays,
        dead_at=head.dead_at,
    )


def _short(name: str) -> str:
    """Return both ends of a long id: those of one hour often begin alike."""
    return name if len(name) <= _ID else f"{name[: _ID // 2]}…{name[1 - _ID // 2 :]}"


async def load_acts(context: ServerContext, who: Identity, group: Group) -> tuple[AuditEntry, ...]:
    """Return who did what with a group, latest first."""
    if who.sources:  # the audit of groups may tell of other mailboxes
        return ()
    wanted = AuditFilter(target=group.fingerprint)
    return tuple(await latest_entries(context.store, wanted, before=None, limit=_ACTS))


def _rules(lines: Sequence[RuleLine], name: str) -> list[Rule]:
    found = []
    for line in lines:
        if name not in {line.group, line.target}:
            continue
        other = line.target if line.group == name else line.group
        if line.query:
            text = "Split off it: letters with" if line.group == name else "Letters split off with"
            text = f"{text} {cut(line.query, sentences.LONGEST)}"
        else:
            text = "Merged into another group" if line.group == name else "Merged into this group"
        undone = line.target if line.query else line.group
        found.append(
            Rule(
                text=text,
                other=cut(other, sentences.NAME),
                other_path=path_to("groups", other) if line.query or line.group == name else "",
                by=cut(line.actor, sentences.NAME),
                undo=path_to("groups", undone, "undo"),
            )
        )
    return found[:_RULES]
