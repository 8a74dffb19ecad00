"""Transactions on campaigns and brake windows: plan, pause, resume, end, release."""

from collections.abc import Sequence
from datetime import datetime

from deadletter.core.audit import act
from deadletter.core.brake import Release
from deadletter.core.campaign import Campaign, CampaignState
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import By
from deadletter.core.replay_rules import check_change, has_begun, runs_as
from deadletter.core.text import many

from .operations import CampaignPosition, LetterOperations


async def existing(store: LetterOperations, campaign: str) -> CampaignPosition:
    """Return the position of a campaign. Raises NotFound if there is no such campaign."""
    course = await store.find_campaign(campaign)
    if course is None:
        raise missing(campaign)
    return course


def missing(campaign: str) -> NotFound:
    """Return the error for a campaign that does not exist."""
    return NotFound(f"there is no campaign {campaign}")


async def plan_replay(
    store: LetterOperations, campaign: Campaign, ids: Sequence[str], now: datetime
) -> None:
    """Start a campaign over letters, or add letters to it."""
    await store.start_campaign(campaign)
    course = await existing(store, campaign.id)
    if course.state is CampaignState.CANCELLED:
        raise Conflict(f"campaign {campaign.id} is cancelled: start another one")
    if course.is_closed:
        raise has_begun(campaign.id)
    if course.state is CampaignState.DONE:  # it ended before all letters were planned
        await store.set_campaign(course, CampaignState.RUNNING, course.runs_as)
    added = await store.plan_items(course, campaign, ids)
    by = By(campaign.actor, campaign.reason)
    detail = f"{many(added, 'letter')}: {campaign.query}"
    await store.append_audit([act("replay", campaign.id, by, at=now, detail=detail)])


async def set_campaign(
    store: LetterOperations, campaign: str, state: CampaignState, by: By, now: datetime
) -> None:
    """Pause, resume, cancel or end a campaign."""
    course = await existing(store, campaign)
    check_change(campaign, course.state, state)
    if state is course.state:
        return
    await store.set_campaign(course, state, runs_as(course.runs_as, state, by))
    detail = f"{course.state} to {state}"
    await store.append_audit([act("campaign", campaign, by, at=now, detail=detail)])


async def release_windows(store: LetterOperations, mailbox: str, by: By, now: datetime) -> int:
    """Release the open brake windows of a mailbox; return their number."""
    released = await store.release_windows(mailbox, Release(by.actor, by.reason, now))
    if released:
        await store.append_audit([act("release-brake", mailbox, by, at=now)])
    return released
