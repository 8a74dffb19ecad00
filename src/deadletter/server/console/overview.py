"""The overview: does anything need me?"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.campaign import Campaign, CampaignState, Outcome, handled, unsent, unsettled
from deadletter.core.letter import AuditEntry, State, still_open
from deadletter.core.text import many
from deadletter.office.audit import AuditFilter, latest_entries
from deadletter.office.groups import GroupLine
from deadletter.office.stats import MailboxLine
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, ServerContext, Who

from . import words
from .pages import About, render_page, render_part

_REPLAYS: Final = 5
_ACTS: Final = 8
_GROUPS: Final = 1_000  # counted up to here; more is `≥ 1,000`


class MailboxRow(Struct, frozen=True, kw_only=True):
    """Letters of one mailbox by state, and its messages where the engine counts them."""

    name: str
    open: int
    pending: int
    reviewed: int
    quarantined: int
    ready: int | None = None  # None: not a mailbox of this engine
    claimed: int | None = None
    suspects: int | None = None


class ReplayRow(Struct, frozen=True, kw_only=True):
    """A replay that is being sent."""

    id: str
    query: str
    actor: str
    total: int
    handled: int
    on_the_way: int
    failed: int
    left: int


class Act(Struct, frozen=True, kw_only=True):
    """One line of the audit."""

    entry: AuditEntry
    what: str


class Overview(Struct, frozen=True, kw_only=True):
    """Everything that the overview shows."""

    headline: str
    below: str
    open: int
    letters: int  # of any state: 0 means that nothing ever died
    mailboxes: tuple[MailboxRow, ...]
    replays: tuple[ReplayRow, ...]
    acts: tuple[Act, ...]
    limited: bool  # sees some mailboxes only


@get("/", guards=[needs(Role.READER)], include_in_schema=False)
async def show_overview(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    part: Annotated[
        Literal["headline", "mailboxes", "replays", "acts"] | None, QueryParameter()
    ] = None,
) -> Response[bytes]:
    """Show the overview, or one part of it."""
    page = await load_overview(context, who)
    if part is not None:
        return render_part(request, f"parts/overview_{part}.html", page)
    about = About(title="Overview", screen="overview", command="dlq", api="/stats")
    return await render_page(request, "overview.html", page, about)


async def load_overview(context: ServerContext, who: Identity) -> Overview:
    """Return what this person sees on the overview."""
    stats = await context.office.stats(sources=who.sources)
    groups = await context.office.groups.list(sources=who.sources, limit=_GROUPS)
    owner = who.principal if who.sources else None
    running = await context.store.campaigns(limit=_REPLAYS, only=CampaignState.RUNNING, owner=owner)
    acts: Sequence[AuditEntry] = ()
    if not who.sources:  # the audit is read from its end, and others see only a part of it
        acts = await latest_entries(context.store, AuditFilter(), before=None, limit=_ACTS)
    opened = still_open(stats.letters)
    return Overview(
        headline=headline(opened, len(groups.groups), at_least=groups.after is not None),
        below=_below(stats.arrivals[0].count if stats.arrivals else 0, groups.groups, running),
        open=opened,
        letters=sum(stats.letters.values()),
        mailboxes=_mailboxes(stats.mailboxes, stats.sources),
        replays=tuple(map(_replay, running)),
        acts=tuple(Act(entry=entry, what=_what(entry)) for entry in acts),
        limited=bool(who.sources),
    )


def headline(opened: int, problems: int, *, at_least: bool = False) -> str:
    """Return the sentence that answers how bad it is."""
    if not opened:
        return "No open letters"
    found = many(problems, "problem")
    return f"{many(opened, 'open letter')}, {'≥ ' if at_least else ''}{found}"


def _below(deaths: int, groups: Sequence[GroupLine], running: Sequence[Campaign]) -> str:
    parts = [f"{many(deaths, 'death')} in the last hour"]
    if alarming := sum(group.status in {"new", "regressed"} for group in groups):
        parts.append(f"{many(alarming, 'problem')} new or regressed")
    if running:
        parts.append(f"{many(len(running), 'replay')} running")
    return " · ".join(parts)


def _mailboxes(
    lines: Sequence[MailboxLine], sources: Mapping[str, Mapping[State, int]]
) -> tuple[MailboxRow, ...]:
    known = {line.mailbox: line for line in lines}
    rows = []
    for name in known.keys() | sources.keys():
        counts, line = sources.get(name, {}), known.get(name)
        rows.append(
            MailboxRow(
                name=name,
                open=still_open(counts),
                pending=counts.get(State.PENDING, 0),
                reviewed=counts.get(State.REVIEWED, 0),
                quarantined=counts.get(State.QUARANTINED, 0),
                ready=line.ready if line else None,
                claimed=line.claimed if line else None,
                suspects=line.suspects if line else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.open, row.name)))


def _replay(campaign: Campaign) -> ReplayRow:
    counts = campaign.counts
    return ReplayRow(
        id=campaign.id,
        query=campaign.query,
        actor=campaign.actor,
        total=sum(counts.values()),
        handled=handled(campaign),
        on_the_way=unsettled(campaign),
        failed=counts.get(Outcome.FAILED, 0),
        left=unsent(campaign),
    )


def _what(entry: AuditEntry) -> str:
    return words.joined([part for part in (entry.detail, entry.reason) if part][:1])


routes: Final[list[Any]] = [show_overview]
