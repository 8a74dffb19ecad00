"""Sending letters back: planned, watched, resumable after a crash at any point."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.campaign import Campaign, CampaignState, unsent, unsettled
from deadletter.core.care import AT_ONCE, Care, Halt, Wait, checked
from deadletter.core.errors import ConfigError, Conflict, NotFound, Unavailable
from deadletter.core.letter import By
from deadletter.core.query import show
from deadletter.core.query.ast import Node
from deadletter.ports import (
    Clock,
    Dice,
    KeyRing,
    Ledger,
    LetterStore,
    Outlet,
    Posted,
    Postman,
)

from .batches import Portion, whole_letters
from .letters import Letters
from .pace import Pace, until
from .posting import post
from .preflight import Plan, Preflight, Tally
from .watch import LOOK, Watch

MOST: Final = 200_000  # letters in one campaign
CAP: Final = 5
HIGHEST_CAP: Final = 1_000
FASTEST: Final = 1e6  # letters a second; without a rate it is as fast as it goes
PLAN_DAYS: Final = 7  # that a plan may wait for its start: what it showed gets old
_PLANS: Final = 100_000  # looked at in one go: the stale ones are the last
_STALE: Final = f"nobody started it within {PLAN_DAYS} days"
ITSELF: Final = "deadletter"  # who pauses a campaign that stops by itself
STOPPED: Final = "stopped by itself"
_SETTLED: Final = frozenset({CampaignState.DONE, CampaignState.CANCELLED})

Progress: TypeAlias = Callable[[int], None]
"""Told how many letters have gone, or how many outcomes are waited for."""


class ReplayPage(Struct, frozen=True):
    """Some campaigns, latest first; `after` continues the list."""

    replays: tuple[Campaign, ...]
    after: str | None = None


class Replay:
    """
    Replay campaigns over one office.

    What a campaign sends is chosen when it starts. Each letter is claimed with
    its generation before its copy is sent, so a campaign that was killed sends
    the letters it was not sure of again under the same generation, and a
    consumer with a ledger handles each of them once.
    """

    def __init__(
        self,
        store: LetterStore,
        broker: Outlet,
        clock: Clock,
        dice: Dice,
        ledger: Ledger | None = None,
        *,
        postman: Postman | None = None,
        ring: KeyRing | None = None,
    ) -> None:
        self._store = store
        self._broker = broker
        self._clock = clock
        self._dice = dice
        self._ledger = ledger
        self._postman = postman
        self._ring = ring or KeyRing(store)
        self._letters = Letters(store, clock)

    async def plan(
        self,
        query: str | Node,
        *,
        to: str | None = None,
        limit: int = MOST,
        cap: int = CAP,
    ) -> Plan:
        """What a replay of these letters would do: a verdict for each, and the sums."""
        ids, text = await self._chosen(query, limit)
        return await self.judge(ids, query=text, to=to, cap=cap, more=len(ids) == limit)

    async def judge(
        self,
        ids: Sequence[str],
        *,
        query: str,
        to: str | None = None,
        cap: int = CAP,
        more: bool = False,
    ) -> Plan:
        """A plan over letters that are chosen already."""
        queues = await self._broker.queues()
        preflight = Preflight(
            now=self._clock.now(),
            cap=cap,
            to=to,
            mailboxes=None
            if queues is None
            else frozenset(queue.options.name for queue in queues),
            ledger=self._ledger,
        )
        tally = Tally(to)
        async for letters in whole_letters(self._store, ids):
            tally.add(letters, await preflight.judge(letters))
        return tally.plan(query, more=more)

    async def start(
        self,
        query: str | Node,
        by: By,
        *,
        to: str | None = None,
        limit: int = MOST,
        cap: int = CAP,
        rate: float | None = None,
        care: Care = AT_ONCE,
        expect: int | None = None,
    ) -> Campaign:
        """
        Choose the letters and record the campaign; `run` sends them.

        With `expect`, the count somebody has agreed to, a selection of another
        size is a Conflict: look at the plan again.
        """
        ids, text = await self._chosen(query, limit)
        if expect is not None and len(ids) != expect:
            raise Conflict(
                f"{len(ids):,} letters match now, not {expect:,}: look at it again"
            )
        return await self.begin(
            ids, by, query=text, to=to, cap=cap, rate=rate, care=care
        )

    async def begin(
        self,
        ids: Sequence[str],
        by: By,
        *,
        query: str,
        to: str | None = None,
        cap: int = CAP,
        rate: float | None = None,
        care: Care = AT_ONCE,
        hold: bool = False,
    ) -> Campaign:
        """
        Record a campaign over letters that are chosen already.

        With `hold` it is only planned: it is sent once somebody resumes it.
        """
        if not ids:
            raise NotFound("no letter matches, so there is nothing to replay")
        if not 1 <= cap <= HIGHEST_CAP:
            raise ConfigError(
                f"the cap is how often a letter may be replayed: 1 to {HIGHEST_CAP:,}"
            )
        if rate is not None and not 0 < rate <= FASTEST:
            raise ConfigError(
                f"the rate is letters a second: more than 0, up to {FASTEST:,.0f}"
            )
        campaign = Campaign(
            id=self._dice.new_id(),
            query=query,
            created_at=self._clock.now(),
            actor=by.actor,
            reason=by.reason,
            owner=by.principal,
            runs_as="" if hold else by.principal,
            state=CampaignState.PLANNED if hold else CampaignState.RUNNING,
            to=to,
            rate=rate,
            cap=cap,
            care=checked(care),
        )
        await self._store.plan_replay(campaign, ids)
        return campaign

    async def run(
        self,
        campaign_id: str,
        *,
        rate: float | None = None,
        stop: asyncio.Event | None = None,
        on_progress: Progress | None = None,
        on_wait: Progress | None = None,
    ) -> Campaign:
        """
        Send what is left of a campaign, until it is paused or `stop` is set.

        It pauses by itself when more letters fail again than its care allows. The
        campaign is done when every copy has an outcome, which takes a worker.
        A copy is the message as it was, body and headers untouched, but for an
        expiry that is over.
        """
        campaign = await self.status(campaign_id)
        stop = stop or asyncio.Event()
        pace = Pace(rate or campaign.rate, self._clock.monotonic)
        watch = Watch(campaign, lambda: self.status(campaign.id), self._clock.monotonic)
        postman = self._postman
        portion = Portion() if postman is None else Portion(postman.at_once)
        while not stop.is_set():
            if (wait := pace.wait()) and watch.gone < unsent(campaign):
                await until(stop, wait)
                continue
            step = await watch.step()
            if isinstance(step, Halt):
                if await self._halted(campaign.id, step):
                    break
                await until(stop, LOOK)
                continue
            if isinstance(step, Wait):
                if watch.campaign.state is not CampaignState.RUNNING:
                    break
                if on_wait is not None:
                    on_wait(step.outcomes)
                await until(stop, LOOK)
                continue
            size = pace.size(portion.size)
            posted = await self._send_some(campaign, min(step.most or size, size))
            if not posted.letters:  # nothing left, or paused by somebody
                break
            watch.sent(posted.letters)
            pace.spend(posted.letters)
            portion.learn(posted.letters, posted.size)
            if on_progress is not None:
                on_progress(posted.letters)
        return await self.status(campaign.id)

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
        """Send no more of it. Letters not sent yet stay as they are."""
        return await self._set(campaign_id, CampaignState.CANCELLED, by)

    async def wait_confirmed(
        self,
        campaign_id: str,
        *,
        timeout: float,  # noqa: ASYNC109 -- running out of it is an answer, not an error
        stop: asyncio.Event | None = None,
        on_look: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        """Wait until every copy sent has an outcome, `timeout` or `stop` ends it."""
        stop = stop or asyncio.Event()
        deadline = self._clock.monotonic() + timeout
        while True:
            campaign = await self.status(campaign_id)
            if on_look is not None:
                on_look(campaign)
            left = deadline - self._clock.monotonic()
            if not unsettled(campaign) or left <= 0 or stop.is_set():
                return campaign
            await until(stop, min(LOOK, left))

    async def _halted(self, campaign_id: str, halt: Halt) -> bool:
        with suppress(Unavailable):  # it must not go on because nobody could be told
            with suppress(Conflict):  # it has ended meanwhile
                await self.pause(campaign_id, By(ITSELF, f"{STOPPED}: {halt.reason}"))
            return True
        return False

    def _is_stale(self, plan: Campaign) -> bool:
        return self._clock.now() - plan.created_at > timedelta(days=PLAN_DAYS)

    async def _chosen(self, query: str | Node, limit: int) -> tuple[list[str], str]:
        node = self._letters.understand(query)
        ids = await self._letters.freeze(node, limit=min(limit, MOST))
        return ids, query if isinstance(query, str) else show(node)

    async def _send_some(self, campaign: Campaign, limit: int) -> Posted:
        if self._postman is not None:
            return await self._postman.send_back(campaign.id, limit=limit)
        now = self._clock.now()
        return await post(
            self._store,
            self._broker,
            campaign,
            limit=limit,
            now=now,
            keys=await self._ring.keys(),
        )

    async def _set(self, campaign_id: str, state: CampaignState, by: By) -> Campaign:
        campaign = await self.status(campaign_id)
        if campaign.state in _SETTLED:
            raise Conflict(f"replay {campaign.id} is {campaign.state} already")
        if campaign.state is not state:
            await self._store.set_campaign(campaign.id, state, by)
        return await self.status(campaign.id)
