"""
Selection of the letters of a replay, and the campaigns of an office.

Letters are selected oldest first: verdicts come first, then the limit.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol

from msgspec import Struct

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Care,
    Outcome,
    ReplayItem,
    Verdict,
    unsent,
)
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.letter import By, DeadLetter
from deadletter.core.query import first_word, parse, show
from deadletter.core.query.ast import Node
from deadletter.core.text import many
from deadletter.ports import Clock, LetterStore

from .batches import whole_letters
from .letters import Letters
from .preflight import Plan, Preflight, Tally
from .replay_plans import check_judged
from .replay_steps import LOOK


class Selected(Struct, frozen=True):
    """The letters that a replay sends, and the verdicts that selected them."""

    plan: Plan
    ids: tuple[str, ...]


async def select(
    store: LetterStore,
    preflight: Preflight,
    ids: Sequence[str],
    *,
    query: str,
    care: Care,
    limit: int | None,
    most: int,
    more: bool = False,
) -> Selected:
    """
    Judge letters, oldest sent first, until `limit` of them are to be sent.

    Letters that are left out are not among them, except those past the cap, which are
    quarantined when their turn comes. If nothing is to be sent, all are returned but those
    drained from another server.
    """
    if len(ids) > min(most, most if limit is None else limit):
        ids = (await store.sent_order(ids))[:most]
    tally = Tally(preflight.to, care)
    chosen: list[str] = []
    elsewhere: set[str] = set()
    seen = sent = 0
    async for letters, verdicts in judged(store, preflight, ids, care=care, limit=limit):
        tally.add(letters, verdicts)
        seen += len(letters)
        for letter, verdict in zip(letters, verdicts, strict=True):
            is_sent = care.sends(verdict)
            sent += is_sent
            if verdict is Verdict.ELSEWHERE:
                elsewhere.add(letter.id)
            if is_sent or verdict is Verdict.PAST_CAP:
                chosen.append(letter.id)
    is_cut = more or (sent == limit and seen < len(ids))
    plan = tally.plan(query, more=is_cut, through=preflight.through)
    here = [id_ for id_ in ids if id_ not in elsewhere]
    return Selected(plan, tuple(chosen if plan.sendable else here))


def check_not_elsewhere(selected: Selected) -> None:
    """Raise `Conflict` if all letters were drained from other servers."""
    if not selected.ids and selected.plan.verdicts.get(Verdict.ELSEWHERE):
        raise Conflict(
            "these letters were drained from a server of others, and nothing says which"
            " one they go back to: name it as [sources.NAME] in deadletter.toml, send"
            " them through a URL, or name a mailbox of ours to send them to"
        )


async def judged(
    store: LetterStore, preflight: Preflight, ids: Sequence[str], *, care: Care, limit: int | None
) -> AsyncIterator[tuple[Sequence[DeadLetter], Sequence[Verdict]]]:
    """Yield letters and their verdicts, some at a time, until `limit` are to be sent."""
    left = limit
    async for letters in whole_letters(store, ids):
        verdicts = await preflight.judge(letters)
        within = _within(left, care, verdicts)
        yield letters[:within], verdicts[:within]
        if left is not None:
            left -= sum(care.sends(verdict) for verdict in verdicts[:within])
            if not left:
                return


def _within(left: int | None, care: Care, verdicts: Sequence[Verdict]) -> int:
    """Return how many letters to visit until that many are to be sent."""
    if left is None:
        return len(verdicts)
    for place, verdict in enumerate(verdicts):
        if not left:
            return place
        left -= care.sends(verdict)
    return len(verdicts)


MOST: Final = 200_000  # letters changed at once, and in one replay
WIDEST: Final = 1_000_000  # letters among which the oldest are sought
_NAMED: Final = 20  # letters in the record of what was chosen


class Chosen(Struct, frozen=True):
    """Letters that somebody selected; `query` is empty if they were named one by one."""

    ids: tuple[str, ...]
    query: str
    more: bool = False  # the limit cut them off

    @property
    def said(self) -> str:
        """Return how they were selected, for the audit."""
        if self.query:
            return self.query
        more = len(self.ids) - _NAMED
        names = " ".join(self.ids[:_NAMED])
        return f"{names} and {more:,} more" if more > 0 else names

    def check(self, expect: int | None, limit: int | None = None) -> None:
        """Reject a selection of another size than was agreed to."""
        count = len(self.ids) if limit is None else min(limit, len(self.ids))
        if expect is not None and count != expect:
            match = many(count, "letter matches", "letters match")
            raise Conflict(f"{match} now, not {expect:,}: look at it again")


def check_words(query: str | Node, *, allowed: bool, how: str) -> None:
    """
    Reject free words in a search that changes letters, unless they are `allowed`.

    A word may be anywhere in a letter: `5` finds nearly all of them. `how` says how to allow
    words.
    """
    word = first_word(parse(query) if isinstance(query, str) else query)
    if word is not None and not allowed:
        raise ConfigError(
            f"{word.text!r} is neither the id of a letter nor a field with its value:"
            " letters that contain a text are not changed by accident. Name ids, or"
            f" fields as in source:orders or error:Timeout*; to mean the text, {how}"
        )


class Freezes(Protocol):
    """Letters whose ids can be fixed by a search, here or over HTTP."""

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        """Return the ids that a search finds now."""


async def found_by(
    letters: Freezes, query: str | Node, *, limit: int | None = None, widest: int = MOST
) -> Chosen:
    """Return the letters that a search finds now. Raises NotFound if there are none."""
    text = query if isinstance(query, str) else show(query) or "*"
    most = min(limit or widest, widest)
    ids = await letters.freeze(query, limit=most)
    if not ids:
        raise NotFound(f"no letter matches {text}")
    return Chosen(tuple(ids), text, len(ids) == most)


async def choose_letters(letters: Freezes, query: str) -> Chosen:
    """Return the letters that a search by fields finds now; free words are rejected."""
    check_words(query, allowed=False, how="write text:WORD")
    return await found_by(letters, query)


PLAN_DAYS: Final = 7  # that a plan may wait for its start: what it showed gets old
_UNDER_WAY: Final = 25  # looks whether a batch that was being sent has ended
_ITEMS: Final = 1_000  # of a campaign, looked at in one go
_PLANS: Final = 100_000  # looked at in one go: the stale ones are the last
_STALE: Final = f"nobody started it within {PLAN_DAYS} days"
_SETTLED: Final = frozenset({CampaignState.DONE, CampaignState.CANCELLED})


class ReplayPage(Struct, frozen=True):
    """A page of campaigns, latest first; `after` continues it."""

    replays: tuple[Campaign, ...]
    after: str | None = None


class Campaigns:
    """The campaigns of one office, and their states."""

    def __init__(self, store: LetterStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._letters = Letters(store, clock)

    async def status(
        self, campaign_id: str, *, seen: Callable[[Campaign], bool] | None = None
    ) -> Campaign:
        """
        Return a campaign and its counts, by its id or the beginning of it.

        Campaigns that are not `seen` are treated as missing.
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
            raise Conflict(f"{len(found)} replays begin with {campaign_id}; give more of the id")
        return found[0]

    async def latest(
        self, *, limit: int = 20, only: CampaignState | None = None
    ) -> Sequence[Campaign]:
        """Return campaigns with their counts, latest first."""
        return await self._store.campaigns(limit=limit, only=only)

    async def page(
        self, *, limit: int = 20, owner: str | None = None, after: str | None = None
    ) -> ReplayPage:
        """Return campaigns with their counts, or those that one principal planned."""
        found = await self._store.campaigns(limit=limit + 1, owner=owner, after=after)
        more = len(found) > limit
        return ReplayPage(tuple(found[:limit]), found[limit - 1].id if more else None)

    async def let_go_of_plans(self, actor: str) -> int:
        """Cancel plans that are too old; return their number."""
        plans = await self.latest(limit=_PLANS, only=CampaignState.PLANNED)
        stale = [plan for plan in plans if self._is_stale(plan)]
        for plan in stale:
            with suppress(Conflict):  # somebody was faster
                await self.cancel(plan.id, By(actor, _STALE))
        return len(stale)

    async def pause(self, campaign_id: str, by: By) -> Campaign:
        """Stop sending for now."""
        return await self._set(campaign_id, CampaignState.PAUSED, by)

    async def resume(self, campaign_id: str, by: By, *, take_over: bool = False) -> Campaign:
        """
        Let a campaign run again; `run` sends it.

        Somebody may still be sending a running campaign, and two senders would send the same
        letters: resuming it requires `take_over`.
        """
        campaign = await self.status(campaign_id)
        if campaign.state is CampaignState.PLANNED and self._is_stale(campaign):
            raise Conflict(
                f"replay {campaign.id} was planned more than {PLAN_DAYS} days ago:"
                " plan it again, to see what it would do now"
            )
        if campaign.state is CampaignState.PLANNED:
            check_judged(campaign)
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
        End a campaign. Letters that were not sent keep their state.

        Letters whose sending was interrupted are reopened as `unconfirmed`: their copies may
        have been sent. A batch in progress is given time to end.
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
        """Yield all items of a campaign, some at a time."""
        after: int | None = 0
        while after is not None:
            page = await self._store.campaign_items(campaign_id, after=after, limit=_ITEMS)
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
