"""Replays: planned, watched, and resumable after a crash at any point."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from msgspec import structs

from deadletter.core.campaign import (
    AT_ONCE,
    Campaign,
    CampaignState,
    Care,
    Halt,
    KeptPlan,
    Outcome,
    Send,
    Step,
    Treatment,
    Verdict,
    Wait,
    checked,
    unsent,
    unsettled,
    whole_keys,
)
from deadletter.core.errors import ConfigError, Conflict, NotFound, Unavailable
from deadletter.core.letter import By
from deadletter.core.query.ast import Node
from deadletter.core.text import many
from deadletter.ports import (
    AtomicReplay,
    Clock,
    Dice,
    KeyRing,
    Ledger,
    LedgerInUse,
    LetterStore,
    Outlet,
    Posted,
    WaysBack,
)

from .batches import Portion
from .outcomes import ITSELF, Route, open_route, settle_all
from .preflight import Fits, processed_since
from .replay_plans import frozen_slices
from .replay_steps import LOOK, PATIENCE, Pace, Watch, post, until
from .replay_verdicts import CAP, JudgedCampaigns
from .selection import MOST, check_not_elsewhere

HIGHEST_CAP: Final = 1_000
FASTEST: Final = 1e6  # letters per second
STOPPED: Final = "stopped by itself"

Progress: TypeAlias = Callable[[int], None]
"""A callback with the number of letters sent, or of outcomes waited for."""


class Replay(JudgedCampaigns):
    """
    Replay campaigns of one office.

    The letters of a campaign are selected when it starts. Each letter is claimed with its
    generation before its copy is sent. A campaign that was killed sends unconfirmed claims
    again under the same generation, so a consumer with a ledger handles each once. A foreign
    server that can tell is asked first which of these copies it has.
    """

    def __init__(
        self,
        store: LetterStore,
        broker: Outlet,
        clock: Clock,
        dice: Dice,
        ledger: Ledger | None = None,
        *,
        atomic_replay: AtomicReplay | None = None,
        ring: KeyRing | None = None,
        fits: Fits | None = None,
        ways: WaysBack | None = None,
        presume_after: float | None = None,
    ) -> None:
        super().__init__(store, broker, clock, ledger, fits=fits, ways=ways)
        self._dice = dice
        self._atomic_replay = atomic_replay
        self._ring = ring or KeyRing(store)
        self._presume_after = presume_after

    async def start(
        self,
        query: str | Node,
        by: By,
        *,
        to: str | None = None,
        limit: int | None = None,
        cap: int = CAP,
        rate: float | None = None,
        care: Care = AT_ONCE,
        expect: int | None = None,
        through: str | None = None,
    ) -> Campaign:
        """
        Select the letters and record the campaign; `run` sends them, oldest first.

        At most `limit` letters are sent; letters that are left out do not count. Raises
        Conflict if `expect` is given and the selection has another size.
        """
        found, text = await self._chosen(query)
        ids: Sequence[str] = found
        count = len(ids) if limit is None else min(len(ids), limit)
        if expect is not None and count != expect:
            match = many(count, "letter matches", "letters match")
            raise Conflict(f"{match} now, not {expect:,}: look at it again")
        needs_verdicts = care.skip or self._fits or self._ways
        if len(ids) > count or len(ids) > MOST or needs_verdicts:
            selected = await self.select(
                ids, query=text, to=to, cap=cap, limit=limit, care=care, through=through
            )
            check_not_elsewhere(selected)
            ids, through = selected.ids, selected.plan.through
        return await self.begin(
            ids, by, query=text, to=to, cap=cap, rate=rate, care=care, through=through or ""
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
        through: str = "",
    ) -> Campaign:
        """
        Record a campaign over selected letters.

        With `hold` it is only planned: nothing is sent before somebody resumes it. `through` is
        the name of the foreign server that the letters go back to.
        """
        campaign = self._new(
            ids, by, query=query, to=to, cap=cap, rate=rate, care=care, hold=hold, through=through
        )
        await self._store.plan_replay(campaign, ids)
        return campaign

    async def freeze(
        self,
        ids: Sequence[str],
        by: By,
        *,
        query: str,
        to: str | None = None,
        cap: int = CAP,
        limit: int | None = None,
        rate: float | None = None,
        care: Care = AT_ONCE,
        more: bool = False,
        through: str | None = None,
    ) -> Campaign:
        """
        Record a planned campaign over these letters, which are judged later by `judge_some`.

        Its plan says how many of the letters are judged so far. Nothing is sent before
        somebody starts it.
        """
        ordered = await self._store.sent_order(ids)
        is_cut = more or len(ordered) > MOST
        ordered = ordered[:MOST]
        campaign = self._new(
            ordered,
            by,
            query=query,
            to=to,
            cap=cap,
            rate=rate,
            care=care,
            hold=True,
            through=await self._way(to, through, ordered),
        )
        plan = KeptPlan(
            total=len(ordered), limit=limit, more=is_cut, names_server=through is not None
        )
        campaign = structs.replace(campaign, plan=plan)
        await self._store.freeze_replay(campaign, frozen_slices(ordered))
        return campaign

    def _new(
        self,
        ids: Sequence[str],
        by: By,
        *,
        query: str,
        to: str | None,
        cap: int,
        rate: float | None,
        care: Care,
        hold: bool,
        through: str,
    ) -> Campaign:
        """Return a new campaign; raise ConfigError for limits that are out of range."""
        if not ids:
            raise NotFound("no letter matches, so there is nothing to replay")
        if not 1 <= cap <= HIGHEST_CAP:
            raise ConfigError(
                f"the cap is how often a letter may be replayed: 1 to {HIGHEST_CAP:,}"
            )
        if rate is not None and not 0 < rate <= FASTEST:
            raise ConfigError(f"the rate is letters a second: more than 0, up to {FASTEST:,.0f}")
        if through:
            # Nobody reports when a copy is done, so letters of a key wait for nothing.
            presume = care.presume_after
            presume = self._presume_after if presume is None else presume
            care = structs.replace(care, key_order=False, presume_after=presume)
        return Campaign(
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
            through=through,
        )

    async def run(
        self,
        campaign_id: str,
        *,
        rate: float | None = None,
        stop: asyncio.Event | None = None,
        on_progress: Progress | None = None,
        on_wait: Progress | None = None,
        patience: float = PATIENCE,
    ) -> Campaign:
        """
        Send the rest of a campaign, until it is paused or `stop` is set.

        The campaign pauses when more letters fail again than its care allows, and after
        `patience` seconds without any outcome. Letters of one key are sent one after the other,
        each when the one before it is settled. The campaign is done when every copy has an
        outcome, which takes a worker. A copy is the unchanged message, except for an expiry
        that has passed.
        """
        campaign = await self.status(campaign_id)
        identity = campaign.id
        campaign = await self.plans.fill(campaign, lambda: self.status(identity))
        async with open_route(
            campaign, self._broker, self._ways, self._store, self._clock, ring=self._ring
        ) as route:
            await route.settle_interrupted(campaign)
            return await self._run(
                await self.status(campaign.id),
                route,
                rate=rate,
                stop=stop or asyncio.Event(),
                on_progress=on_progress,
                on_wait=on_wait,
                patience=route.patience(campaign, patience),
            )

    async def _run(
        self,
        campaign: Campaign,
        route: Route,
        *,
        rate: float | None,
        stop: asyncio.Event,
        on_progress: Progress | None,
        on_wait: Progress | None,
        patience: float,
    ) -> Campaign:
        async def look() -> Campaign:
            await route.look(await self.status(campaign.id))
            return await self.status(campaign.id)

        pace = Pace(rate or campaign.rate, self._clock.monotonic)
        keyed = bool(campaign.counts.get(Outcome.WAITING))
        watch = Watch(campaign, look, self._clock.monotonic, patience)
        atomic_replay = None if route.is_foreign else self._atomic_replay
        portion = Portion() if atomic_replay is None else Portion(atomic_replay.at_once)
        while not stop.is_set():
            if (wait := pace.wait()) and watch.gone < unsent(campaign):
                await until(stop, wait)
                continue
            step = await watch.step()
            if isinstance(step, Halt) or (isinstance(step, Wait) and not keyed):
                if await self._ends_with(step, watch, on_wait):
                    break
                await until(stop, LOOK)
                continue
            started = await self._keys_to_start(watch, step) if keyed else None
            limit = pace.size(portion.size)
            if not keyed:
                limit = min(_most(step) or limit, limit)
            posted = await self._send_some(campaign, limit, started, route)
            if not posted.letters and not posted.left_out and not posted.refused:
                if not keyed or await self._ends_keys(watch, on_wait):
                    break  # nothing left, or paused by somebody
                await until(stop, LOOK)
                continue
            watch.sent(posted.letters)
            pace.spend(posted.letters)
            portion.learn(posted.letters, posted.size)
            if on_progress is not None:
                on_progress(posted.letters)
        return await self.status(campaign.id)

    async def wait_confirmed(
        self,
        campaign_id: str,
        *,
        timeout: float,  # noqa: ASYNC109 -- running out of it is an answer, not an error
        stop: asyncio.Event | None = None,
        on_look: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        """Wait until every copy has an outcome, or `timeout` or `stop` ends the wait."""
        stop = stop or asyncio.Event()
        deadline = self._clock.monotonic() + timeout
        campaign = await self.status(campaign_id)
        async with open_route(
            campaign, self._broker, self._ways, self._store, self._clock, ring=self._ring
        ) as route:
            while True:
                await route.look(campaign)
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

    async def settle_others(self) -> int:
        """Settle copies of all campaigns that went to foreign consumers."""
        if self._ways is None:
            return 0
        return await settle_all(self._store, self._clock, self._ways)

    async def _ends_with(self, step: Step, watch: Watch, on_wait: Progress | None) -> bool:
        """Return whether sending ends now; otherwise wait and check again."""
        if isinstance(step, Halt):
            return await self._halted(watch.campaign.id, step)
        if on_wait is not None and isinstance(step, Wait):
            on_wait(step.outcomes)
        return watch.campaign.state is not CampaignState.RUNNING

    async def _ends_keys(self, watch: Watch, on_wait: Progress | None) -> bool:
        """Return whether no letter waits for another of its key any more."""
        step = await watch.key_step()
        if not unsent(watch.campaign):
            return True
        return await self._ends_with(step, watch, on_wait)

    async def _keys_to_start(self, watch: Watch, step: Step) -> int | None:
        """Return how many letters of new keys may be sent; None means all."""
        campaign, most = watch.campaign, _most(step)
        if not campaign.care.in_steps:
            return None
        if most == 0:
            return 0
        progress = await self._store.key_progress(campaign.id, limit=most or 0)
        if not watch.may_start_keys(most, progress.behind):
            return 0
        return None if most is None else whole_keys(progress.sizes, most - progress.behind)

    async def _send_some(
        self, campaign: Campaign, limit: int, started: int | None, route: Route
    ) -> Posted:
        looked_at, leave_out = (0, None)
        if not route.is_foreign:
            looked_at, leave_out = await self._processed(campaign, limit)
        if self._atomic_replay is not None and not route.is_foreign:
            posted = await self._atomic_replay.send_back(
                campaign.id, limit=limit, leave_out=leave_out, keys=started
            )
        else:
            posted = await post(
                self._store,
                route.outlet,
                campaign,
                limit=limit,
                leave_out=leave_out,
                started=started,
                now=self._clock.now(),
                keys=await self._ring.keys(),
            )
        left_out = max(0, looked_at - posted.letters - posted.refused)
        return structs.replace(posted, left_out=left_out)

    async def _processed(self, campaign: Campaign, limit: int) -> tuple[int, frozenset[str] | None]:
        """
        Find the next letters that were processed since they were selected.

        Returns how many letters were checked, and the ids to leave out; None if no check is
        needed.
        """
        ledger = self._ledger
        if ledger is None or campaign.care.treats(Verdict.PROCESSED) is Treatment.SEND:
            return 0, None
        if isinstance(ledger, LedgerInUse):
            to = campaign.to
            targets = [*await self._store.counts()] if to is None else [to]
            if not await ledger.in_use(targets):
                return 0, None
        letters = await self._store.next_replay(campaign.id, limit=limit)
        return len(letters), await processed_since(ledger, letters, campaign.to)


def _most(step: Step) -> int | None:
    """Return how many letters a step may send; None means all."""
    return step.most if isinstance(step, Send) else 0
