"""Everything that the overview shows, as values: the page and each of its parts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from deadletter.core.campaign import Campaign, Outcome, handled, unsent, unsettled
from deadletter.core.deaths import By
from deadletter.core.letter import GroupStatus, State, still_open
from deadletter.core.text import cut, many, span
from deadletter.office.audit import Run
from deadletter.office.groups import LISTED
from deadletter.office.mailboxes import Outage
from deadletter.ports import QueueInfo
from deadletter.server.console import words
from deadletter.server.console.links import short_name, target_path
from deadletter.server.console.pages import path_to

from .deaths import Choice, Deaths, Span, choose_span, load_deaths
from .needs import Needs, rows_of
from .sight import Sight

Part: TypeAlias = Literal["headline", "needs", "deaths", "chosen", "replays", "mailboxes", "acts"]

PATIENCE: Final = 2.0  # seconds that a part waits for a slow engine
AT_ONCE: Final = 0.3  # seconds that a whole page waits
_ALARMING: Final = (GroupStatus.NEW, GroupStatus.REGRESSED)
_ACTS: Final = 8
_MAILBOXES: Final = 12
_LONGEST: Final = 120  # characters of a text


class Asked(Struct, frozen=True, kw_only=True):
    """The parameters of the overview."""

    span: Span = Span.DAY
    by: By = By.GROUP
    begin: str = ""
    end: str = ""


class Headline(Struct, frozen=True, kw_only=True):
    """How bad it is, in a sentence, and the numbers of the day."""

    text: str
    below: str


class MailboxRow(Struct, frozen=True, kw_only=True):
    """Letters of one mailbox, its messages where the engine counts them, and its brake."""

    name: str
    link: str
    open: int
    ready: int | None = None  # None: not a mailbox of this engine, or no answer
    claimed: int | None = None
    suspects: int = 0
    brake: str = ""  # for how long it has been stopped


class Mailboxes(Struct, frozen=True, kw_only=True):
    """The mailboxes with most to do, and why their messages are not known."""

    rows: tuple[MailboxRow, ...]
    more: int = 0
    problem: str = ""
    is_waiting: bool = False  # the engine has not answered yet


class ReplayRow(Struct, frozen=True, kw_only=True):
    """A replay that is being sent."""

    link: str
    name: str
    query: str
    actor: str
    total: int
    handled: int
    on_the_way: int
    failed: int
    left: int


class Act(Struct, frozen=True, kw_only=True):
    """What somebody did, to one target or to several."""

    at: datetime
    actor: str
    action: str
    target: str
    link: str
    what: str


class Overview(Struct, frozen=True, kw_only=True):
    """
    Everything that the overview shows.

    A part that is refreshed has only its own values; the others are empty.
    """

    asked: Asked
    is_empty: bool = False  # nothing ever died, and there is no mailbox
    headline: Headline | None = None
    needs: Needs | None = None
    deaths: Deaths | None = None
    chosen: Choice | None = None
    replays: tuple[ReplayRow, ...] = ()
    mailboxes: Mailboxes | None = None
    acts: tuple[Act, ...] = ()
    looked_at: datetime

    def path(self, part: Part) -> str:
        """Return the path of a part of this page."""
        asked = self.asked
        if part == "deaths":
            return path_to("", span=asked.span, by=asked.by, part=part)
        return path_to("", part=part)


async def load_overview(sight: Sight, asked: Asked, part: Part | None = None) -> Overview:
    """Return the overview, or what one part of it shows."""
    patience = AT_ONCE if part is None else PATIENCE
    makers: dict[Part, Callable[[], Awaitable[Any]]] = {
        "headline": lambda: load_headline(sight),
        "needs": lambda: load_needs(sight, patience),
        "deaths": lambda: load_deaths(sight, asked.span, asked.by),
        "chosen": lambda: choose_span(sight, asked.begin, asked.end, asked.by),
        "replays": lambda: load_replays(sight),
        "mailboxes": lambda: load_mailboxes(sight, patience, is_page=part is None),
        "acts": lambda: load_acts(sight),
    }
    wanted = [name for name in makers if part in {None, name}]
    made = await asyncio.gather(*(makers[name]() for name in wanted))
    found: dict[str, Any] = dict(zip(wanted, made, strict=True))
    if part is None:
        counts = await sight.counts()
        found["is_empty"] = not counts and not found["mailboxes"].rows
    return Overview(asked=asked, looked_at=sight.context.clock.now(), **found)


async def load_headline(sight: Sight) -> Headline:
    """Return how bad it is."""
    counts, groups, running, deaths = await asyncio.gather(
        sight.counts(), sight.groups(), sight.running(), sight.recent_deaths()
    )
    opened = sum(still_open(states) for states in counts.values())
    return Headline(
        text=headline(opened, sum(n for status, n in groups.items() if status in LISTED)),
        below=_below(groups, len(running), deaths),
    )


def headline(opened: int, problems: int) -> str:
    """Return the sentence that answers how bad it is."""
    if not opened:
        return "No open letters"
    return f"{many(opened, 'open letter')}, {many(problems, 'problem')}"


def _below(groups: Mapping[GroupStatus, int], running: int, deaths: int | None) -> str:
    alarming = sum(groups.get(status, 0) for status in _ALARMING)
    parts = [f"{many(deaths, 'death')} in the last 24 hours"] if deaths is not None else []
    parts += [f"{many(alarming, 'problem')} new or regressed"] if alarming else []
    parts += [f"{many(running, 'replay')} running"] if running else []
    return " · ".join(parts)


async def load_needs(sight: Sight, patience: float) -> Needs | None:
    """Return what needs somebody; None if the office has not answered yet."""
    found = await sight.needs(patience)
    return None if found is None else rows_of(found)


async def load_replays(sight: Sight) -> tuple[ReplayRow, ...]:
    """Return the replays that are running."""
    return tuple(map(_replay, await sight.running()))


def _replay(campaign: Campaign) -> ReplayRow:
    counts = campaign.counts
    return ReplayRow(
        link=path_to("replays", campaign.id),
        name=short_name(campaign.id),
        query=cut(campaign.query, _LONGEST) or "all letters",
        actor=campaign.actor,
        total=sum(counts.values()),
        handled=handled(campaign),
        on_the_way=unsettled(campaign),
        failed=counts.get(Outcome.FAILED, 0),
        left=unsent(campaign),
    )


async def load_mailboxes(sight: Sight, patience: float, *, is_page: bool) -> Mailboxes:
    """Return the mailboxes; without their messages if the engine does not answer in time."""
    counts, outages, queues = await asyncio.gather(
        sight.counts(), sight.outages(), sight.queues(patience)
    )
    engine = sight.context.engine.features.engine
    problem = queues if isinstance(queues, str) else ""
    if queues is None and not is_page:
        problem = f"{engine} did not answer within {patience:g} s."
    rows = mailbox_rows(
        counts, [] if queues is None or isinstance(queues, str) else queues, outages, sight
    )
    return Mailboxes(
        rows=rows[:_MAILBOXES],
        more=max(len(rows) - _MAILBOXES, 0),
        problem=problem,
        is_waiting=queues is None and is_page,
    )


def mailbox_rows(
    counts: Mapping[str, Mapping[State, int]],
    queues: Sequence[QueueInfo],
    outages: Sequence[Outage],
    sight: Sight,
) -> tuple[MailboxRow, ...]:
    """Return mailboxes as rows: the stopped ones first, then those with most open letters."""
    now = sight.context.clock.now()
    known = {queue.options.name: queue for queue in queues}
    stopped = {one.window.mailbox: now - one.window.opened_at for one in outages}
    rows = []
    for name in known.keys() | counts.keys() | stopped.keys():
        queue, lasted = known.get(name), stopped.get(name)
        rows.append(
            MailboxRow(
                name=name,
                link=path_to("queues", name),
                open=still_open(counts.get(name, {})),
                ready=queue.ready if queue else None,
                claimed=queue.claimed if queue else None,
                suspects=queue.suspects if queue else 0,
                brake="" if lasted is None else span(lasted.total_seconds()),
            )
        )
    return tuple(sorted(rows, key=lambda row: (not row.brake, -row.open, row.name)))


async def load_acts(sight: Sight) -> tuple[Act, ...]:
    """Return what was done last."""
    runs, is_all = await sight.acts()
    return tuple(
        act_of(run, is_all=is_all or place < len(runs)) for place, run in enumerate(runs[:_ACTS], 1)
    )


def act_of(run: Run, *, is_all: bool = True) -> Act:
    """Return a run of the audit as one line; it may go on unless `is_all`."""
    entry, targets = run.entry, run.targets
    is_one = targets == 1
    path = target_path(entry.action, entry.target)
    kind = "letter" if path.startswith("/letters/") else "target"
    return Act(
        at=entry.at,
        actor=entry.actor,
        action=entry.action,
        target=short_name(entry.target)
        if is_one
        else f"{'' if is_all else '≥ '}{many(targets, kind)}",
        link=path if is_one else "",
        what=words.joined([part for part in (entry.detail, entry.reason) if part][:1]),
    )
