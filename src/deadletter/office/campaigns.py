"""Replay campaigns as a whole: listed, paused, resumed, cancelled."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from msgspec import Struct

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Outcome,
    ReplayItem,
    unsent,
)
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import By
from deadletter.ports import Clock, LetterStore

from .letters import Letters
from .watch import LOOK

PLAN_DAYS: Final = 7  # that a plan may wait for its start: what it showed gets old
_UNDER_WAY: Final = 25  # looks whether a batch that was being sent has ended
_ITEMS: Final = 1_000  # of a campaign, looked at in one go
_PLANS: Final = 100_000  # looked at in one go: the stale ones are the last
_STALE: Final = f"nobody started it within {PLAN_DAYS} days"
_SETTLED: Final = frozenset({CampaignState.DONE, CampaignState.CANCELLED})


class ReplayPage(Struct, frozen=True):
    """Some campaigns, latest first; `after` continues the list."""

    replays: tuple[Campaign, ...]
    after: str | None = None


class Campaigns:
    """The campaigns of one office, and where they stand."""

    def __init__(self, store: LetterStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._letters = Letters(store, clock)

    async def status(
        self, campaign_id: str, *, seen: Callable[[Campaign], bool] | None = None
    ) -> Campaign:
        """
        A campaign and its counts, by its id or the beginning of it.

        Only those that are `seen` exist at all.
        """
        # Ids begin with the time, so those of one day look alike at the start.
        begins = campaign_id.lower()
        there = await self._store.campaigns(limit=1_000, begins=begins)
        found = [one for one in there if seen is None or seen(one)]
        found = [one for one in found if one.id == begins] or found
        if not found:
            raise NotFound(
                f"there is no replay {campaign_id[:40]!r}; "
                "`dlq replay status` shows the latest ones"
            )
        if len(found) > 1:
            raise Conflict(
                f"{len(found)} replays begin with {campaign_id}; give more of the id"
            )
        return found[0]

    async def latest(
        self, *, limit: int = 20, only: CampaignState | None = None
    ) -> Sequence[Campaign]:
        """Campaigns with their counts, latest first."""
        return await self._store.campaigns(limit=limit, only=only)

    async def page(
        self, *, limit: int = 20, owner: str | None = None, after: str | None = None
    ) -> ReplayPage:
        """Campaigns with their counts, or those that one principal planned."""
        found = await self._store.campaigns(limit=limit + 1, owner=owner, after=after)
        more = len(found) > limit
        return ReplayPage(tuple(found[:limit]), found[limit - 1].id if more else None)

    async def let_go_of_plans(self, actor: str) -> int:
        """Cancel plans whose time is over; how many there were."""
        plans = await self.latest(limit=_PLANS, only=CampaignState.PLANNED)
        stale = [plan for plan in plans if self._is_stale(plan)]
        for plan in stale:
            with suppress(Conflict):  # somebody was faster
                await self.cancel(plan.id, By(actor, _STALE))
        return len(stale)

    async def pause(self, campaign_id: str, by: By) -> Campaign:
        """Stop sending for now."""
        return await self._set(campaign_id, CampaignState.PAUSED, by)

    async def resume(
        self, campaign_id: str, by: By, *, take_over: bool = False
    ) -> Campaign:
        """
        Let sending go on; `run` does it.

        Of a campaign that says it is running somebody may still be sending, and
        two senders would send the same letters: that takes a `take_over`.
        """
        campaign = await self.status(campaign_id)
        if campaign.state is CampaignState.PLANNED and self._is_stale(campaign):
            raise Conflict(
                f"replay {campaign.id} was planned more than {PLAN_DAYS} days ago:"
                " plan it again, to see what it would do now"
            )
        if campaign.state is CampaignState.RUNNING and not take_over:
            if not unsent(campaign):
                raise Conflict(f"everything in replay {campaign.id} is sent already")
            raise Conflict(
                f"replay {campaign.id} is running. If the process that sent it is "
                "gone, take it over with --take-over"
            )
        return await self._set(campaign.id, CampaignState.RUNNING, by)

    async def cancel(self, campaign_id: str, by: By) -> Campaign:
        """
        Send no more of it. Letters not sent yet stay as they are.

        Letters whose sending was interrupted are open again, `unconfirmed`: their
        copies may have been sent. A batch under way is given time to end.
        """
        before = await self.status(campaign_id)
        campaign = await self._set(campaign_id, CampaignState.CANCELLED, by)
        looks = _UNDER_WAY if before.state is CampaignState.RUNNING else 0
        while campaign.counts.get(Outcome.SENDING) and looks:
            looks -= 1
            await asyncio.sleep(LOOK)
            campaign = await self.status(campaign.id)
        if not campaign.counts.get(Outcome.SENDING):
            return campaign
        async for items in self._items(campaign.id):
            ids = [one.letter_id for one in items if one.outcome is Outcome.SENDING]
            await self._letters.reopen(ids, by, unconfirmed=True)
        return await self.status(campaign.id)

    async def _items(self, campaign_id: str) -> AsyncIterator[Sequence[ReplayItem]]:
        """All items of a campaign, some at a time."""
        after: int | None = 0
        while after is not None:
            page = await self._store.campaign_items(
                campaign_id, after=after, limit=_ITEMS
            )
            after = page.after
            yield page.items

    def _is_stale(self, plan: Campaign) -> bool:
        return self._clock.now() - plan.created_at > timedelta(days=PLAN_DAYS)

    async def _set(self, campaign_id: str, state: CampaignState, by: By) -> Campaign:
        campaign = await self.status(campaign_id)
        if campaign.state in _SETTLED:
            raise Conflict(f"replay {campaign.id} is {campaign.state} already")
        if campaign.state is not state:
            await self._store.set_campaign(campaign.id, state, by)
        return await self.status(campaign.id)
