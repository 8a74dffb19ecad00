"""Transactions on plans that are kept with their campaign: freeze, judge, add, approve."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import structs

from deadletter.core.audit import act
from deadletter.core.campaign import Campaign, CampaignState, PlanSlice, read_slice, written_slice
from deadletter.core.errors import Conflict
from deadletter.core.letter import By
from deadletter.core.text import many
from deadletter.ports.letters import PlanChange

from .campaigns import existing, missing
from .operations import CampaignFilter, LetterOperations

_ENDED: Final = frozenset({CampaignState.DONE, CampaignState.CANCELLED})


async def freeze(
    store: LetterOperations, campaign: Campaign, slices: Sequence[PlanSlice], now: datetime
) -> None:
    """Keep a campaign whose letters have yet to be judged."""
    await store.start_campaign(campaign)
    course = await existing(store, campaign.id)
    await store.write_slices(course, dict(enumerate(map(written_slice, slices))))
    # Verification counts the letters that the audit tells of: these are not added yet.
    frozen = sum(len(one.letters) for one in slices)
    by = By(campaign.actor, campaign.reason)
    detail = f"0 letters so far, {frozen:,} to be judged: {campaign.query}"
    await store.append_audit([act("replay", campaign.id, by, at=now, detail=detail)])


async def read_slices(
    store: LetterOperations, campaign: str, first: int, limit: int
) -> list[PlanSlice]:
    """Return slices of the plan of a campaign, from the place `first` on."""
    course = await existing(store, campaign)
    return [read_slice(one) for one in await store.find_slices(course, first, limit)]


async def change(
    store: LetterOperations, seen: Campaign, change: PlanChange, now: datetime
) -> bool:
    """Change a plan, and add letters to its campaign; return False if it is another by now."""
    course = await existing(store, seen.id)
    current = await _campaign(store, seen.id)
    if (current.plan, current.care) != (seen.plan, seen.care) or current.state in _ENDED:
        return False
    campaign = structs.replace(change.campaign, approved_by=current.approved_by)
    await store.rewrite_campaign(course, campaign)
    if change.slices:
        slices = {place: written_slice(one) for place, one in change.slices.items()}
        await store.write_slices(course, slices)
    if change.add:
        added = await store.plan_items(course, campaign, change.add)
        by, detail = By(seen.actor, seen.reason), f"{many(added, 'letter')}: {seen.query}"
        await store.append_audit([act("replay", seen.id, by, at=now, detail=detail)])
    if change.by is not None:
        entry = act("campaign", seen.id, change.by, at=now, detail=change.detail)
        await store.append_audit([entry])
    return True


async def approve(store: LetterOperations, campaign: str, by: By, now: datetime) -> None:
    """Record the second person who agrees to a campaign."""
    course = await existing(store, campaign)
    current = await _campaign(store, campaign)
    if current.state is not CampaignState.PLANNED:
        raise Conflict(f"replay {campaign} is {current.state}: only planned ones are approved")
    if current.approved_by:
        raise Conflict(f"replay {campaign} was approved already, by {current.approved_by}")
    await store.rewrite_campaign(course, structs.replace(current, approved_by=by.actor))
    await store.append_audit([act("approve", campaign, by, at=now)])


async def _campaign(store: LetterOperations, id: str) -> Campaign:
    found = await store.find_campaigns(CampaignFilter(limit=1, begins=id))
    if not found:
        raise missing(id)
    return found[0]
