"""Approval: replays of many letters need a second person before they start."""

from typing import Final

from deadletter.core.campaign import Campaign, CampaignState, Outcome, size_of
from deadletter.core.errors import Conflict
from deadletter.core.letter import By
from deadletter.core.text import many
from deadletter.ports import LetterStore

from .replay_plans import check_judged

_UNSENT: Final = frozenset({Outcome.PLANNED, Outcome.WAITING})


def needs_approval(campaign: Campaign, above: int) -> bool:
    """Return whether a replay of this size waits for a second person; `above` 0 is never."""
    if not above or campaign.approved_by or not _is_unsent(campaign):
        return False
    return size_of(campaign) > above


def waits_for_approval(campaign: Campaign, above: int) -> bool:
    """Return whether a replay can be approved now: all its letters are judged."""
    is_judged = campaign.plan is None or campaign.plan.is_judged
    is_planned = campaign.state is CampaignState.PLANNED
    return is_planned and is_judged and needs_approval(campaign, above)


def check_approved(campaign: Campaign, above: int) -> None:
    """Raise Conflict if a replay may not start before a second person agrees to it."""
    if needs_approval(campaign, above):
        letters = many(size_of(campaign), "letter")
        raise Conflict(
            f"replay {campaign.id} sends {letters}, and more than {above:,} need the approval of"
            " a second person: ask somebody else with the role operator to approve it"
        )


def is_same_person(campaign: Campaign, by: By) -> bool:
    """Return whether somebody planned this replay, by their token or by their name."""
    owns = bool(campaign.owner) and campaign.owner == by.principal
    return owns or campaign.actor == by.actor


async def approve(
    store: LetterStore, campaign: Campaign, by: By, *, expect: int | None = None
) -> None:
    """
    Record that a second person agrees to a replay as it is planned now.

    Raises Conflict for the person who planned it, and unless it is planned, judged, not
    approved yet, and would send `expect` letters.
    """
    if is_same_person(campaign, by):
        raise Conflict(f"{by.actor} planned replay {campaign.id}: somebody else has to approve it")
    if campaign.state is CampaignState.PLANNED:
        check_judged(campaign)
    size = size_of(campaign)
    if expect is not None and expect != size:
        raise Conflict(
            f"replay {campaign.id} would send {many(size, 'letter')}, not {expect:,}: look at it"
            " again"
        )
    await store.approve_replay(campaign.id, by)


def _is_unsent(campaign: Campaign) -> bool:
    """Return whether no letter of a replay was sent yet."""
    if campaign.state is CampaignState.PLANNED:
        return True
    is_added = campaign.plan is not None and campaign.plan.added > 0
    return not is_added and all(one in _UNSENT for one, n in campaign.counts.items() if n)
