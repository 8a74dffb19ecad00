"""The list of replays: who sends what, and how far it is."""

import re
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Outcome,
    handled,
    size_of,
    unsent,
    unsettled,
)
from deadletter.office.outcomes import ITSELF
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext

SIZE: Final = 25
_LOOKED: Final = 100  # replays among which those of a group are looked for
_SHOWN: Final = 5
Tab: TypeAlias = Literal["all", "planned", "running", "paused", "done", "cancelled"]
_TABS: Final[dict[str, CampaignState | None]] = {
    "all": None,
    **{state.value: state for state in CampaignState},
}


class ReplayRow(Struct, frozen=True, kw_only=True):
    """One replay of the list."""

    campaign: Campaign
    standing: str  # the name of its badge
    total: int
    handled: int
    way: int
    failed: int
    left: int
    told: str  # how far it is, in words


class ReplayList(Struct, frozen=True, kw_only=True):
    """A page of replays."""

    rows: tuple[ReplayRow, ...]
    tabs: tuple[tuple[str, str, None, bool], ...]
    tab: str
    here: str  # the path of this page
    older: str
    is_first: bool
    limited: bool


async def load_list(
    context: ServerContext, who: Identity, tab: Tab, after: str | None
) -> ReplayList:
    """Return a page of the replays that this person may see, latest first."""
    found = await context.store.campaigns(
        limit=SIZE + 1, only=_TABS[tab], owner=who.principal if who.sources else None, after=after
    )
    shown = found[:SIZE]
    state = "" if tab == "all" else tab
    return ReplayList(
        rows=tuple([await _row(context, one) for one in shown]),
        tabs=tuple(
            (
                "Paused or halted" if name == "paused" else name.capitalize(),
                path_to("replays", state="" if name == "all" else name),
                None,
                name == tab,
            )
            for name in _TABS
        ),
        tab=tab,
        here=path_to("replays", state=state, after=after or ""),
        older=path_to("replays", state=state, after=shown[-1].id) if len(found) > SIZE else "",
        is_first=after is None,
        limited=bool(who.sources),
    )


async def replays_of(context: ServerContext, who: Identity, group: str) -> tuple[ReplayRow, ...]:
    """Return the latest replays whose search names a group, of those this person may see."""
    found = await context.store.campaigns(
        limit=_LOOKED, owner=who.principal if who.sources else None
    )
    own = re.compile(rf"(?<![\w-]){re.escape(group)}(?![\w-])")
    named = [one for one in found if own.search(one.query)]
    return tuple([await _row(context, one) for one in named[:_SHOWN]])


async def _row(context: ServerContext, campaign: Campaign) -> ReplayRow:
    counts = campaign.counts
    is_halted = False
    if campaign.state is CampaignState.PAUSED:
        acts = await context.store.latest_audit(target=campaign.id, limit=1)
        is_halted = bool(acts) and acts[0].actor == ITSELF
    is_over = campaign.state is CampaignState.CANCELLED
    return ReplayRow(
        campaign=campaign,
        standing="halted" if is_halted else campaign.state.value,
        total=size_of(campaign),
        handled=handled(campaign),
        way=unsettled(campaign),
        failed=counts.get(Outcome.FAILED, 0),
        left=0 if is_over else unsent(campaign),
        told=_told(campaign),
    )


def _told(campaign: Campaign) -> str:
    """Return how far a replay is."""
    plan, size = campaign.plan, size_of(campaign)
    if campaign.state is CampaignState.PLANNED:
        if plan is not None and not plan.is_judged:
            return f"{plan.judged:,} of {plan.total:,} judged"
        return f"{size:,} to send"
    return f"{handled(campaign):,} of {size:,} handled"
