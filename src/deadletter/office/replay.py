"""Replays: planned, watched, and resumable after a crash at any point."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from msgspec import structs

from deadletter.core.campaign import (
    AT_ONCE,
    Campaign,
    CampaignState,
    Care,
    Halt,
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
from deadletter.core.query import show
from deadletter.core.query.ast import Node
from deadletter.core.text import many
from deadletter.intake.dialects import origin_of
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
from .preflight import (
    Fits,
    LetterVerdict,
    LetterVerdicts,
    Plan,
    Preflight,
    name_verdicts,
    processed_since,
)
from .replay_steps import LOOK, PATIENCE, Pace, Watch, post, until
from .selection import MOST, WIDEST, Campaigns, Selected, check_not_elsewhere, judged, select

CAP: Final = 5
HIGHEST_CAP: Final = 1_000
FASTEST: Final = 1e6  # letters per second
STOPPED: Final = "stopped by itself"

Progress: TypeAlias = Callable[[int], None]
"""A callback with the number of letters sent, or of outcomes waited for."""


class Replay(Campaigns):
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
        super().__init__(store, clock)
        self._broker = broker
        self._dice = dice
        self._ledger = ledger
        self._atomic_replay = atomic_replay
        self._ring = ring or KeyRing(store)
        self._fits = fits
        self._ways = ways
        self._presume_after = presume_after

    async def plan(
        self,
        query: str | Node,
        *,
        to: str | None = None,
        limit: int | None = None,
        cap: int = CAP,
        care: Care = AT_ONCE,
        through: str | None = None,
    ) -> Plan:
        """Return the effects of replaying these letters: the number of letters by verdict."""
        ids, text = await self._chosen(query)
        selected = await self.select(
            ids, query=text, to=to, cap=cap, limit=limit, care=care, through=through
        )
        return selected.plan

    async def select(
        self,
        ids: Sequence[str],
        *,
        query: str,
        to: str | None = None,
        cap: int = CAP,
        limit: int | None = None,
        care: Care = AT_ONCE,
        more: bool = False,
        through: str | None = None,
    ) -> Selected:
        """
        Judge letters, and select those that a replay sends: `limit` at most.

        Verdicts come first, then the limit; oldest sent first. `through` names the foreign
        server that they go back to. Without it, that is the server that the first of them was
        drained from, unless `to` is given.
        """
        return await select(
            self._store,
            await self._preflight(to, cap, through, ids),
            ids,
            query=query,
            care=checked(care),
            limit=limit,
            most=MOST,
            more=more,
        )

    async def verdicts(
        self,
        ids: Sequence[str],
        *,
        to: str | None = None,
        cap: int = CAP,
        limit: int | None = None,
        care: Care = AT_ONCE,
        through: str | None = None,
    ) -> AsyncIterator[Sequence[LetterVerdict]]:
        """
        Yield the verdicts on these letters, some at a time.

        With `limit`, only of those that `select` visits.
        """
        preflight = await self._preflight(to, cap, through, ids)
        async for some in self._judged(preflight, ids, care=care, limit=limit):
            yield some

    async def _judged(
        self, preflight: Preflight, ids: Sequence[str], *, care: Care, limit: int | None
    ) -> AsyncIterator[Sequence[LetterVerdict]]:
        async for letters, verdicts in judged(
            self._store, preflight, ids, care=checked(care), limit=limit
        ):
            yield name_verdicts(letters, verdicts, preflight.to)

    async def verdicts_page(
        self,
        ids: Sequence[str],
        *,
        after: int = 0,
        size: int = 100,
        to: str | None = None,
        cap: int = CAP,
        limit: int | None = None,
        care: Care = AT_ONCE,
        through: str | None = None,
    ) -> LetterVerdicts:
        """
        Judge up to `size` of the letters, oldest sent first, those left out included.

        `after` continues. `limit` counts the letters to send from this page on.
        """
        end = after + size
        ordered = (await self._store.sent_order(ids))[:MOST]
        preflight = await self._preflight(to, cap, through, ordered)
        found: list[LetterVerdict] = []
        async for some in self._judged(preflight, ordered[after:end], care=care, limit=limit):
            found += some
        return LetterVerdicts(tuple(found), end if end < len(ordered) else None)

    async def verdicts_of(
        self, campaign: Campaign, *, after: int = 0, limit: int = 100
    ) -> LetterVerdicts:
        """Return the current verdicts on some letters of a campaign, in sending order."""
        page = await self._store.campaign_items(campaign.id, after=after, limit=limit)
        ids = [item.letter_id for item in page.items]
        found: list[LetterVerdict] = []
        to, cap, through = campaign.to, campaign.cap, campaign.through
        async for some in self.verdicts(ids, to=to, cap=cap, through=through):
            found += some
        return LetterVerdicts(tuple(found), page.after)

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
            through=through,
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

    async def _way(self, to: str | None, through: str | None, ids: Sequence[str]) -> str:
        """Return the server that letters go back to; empty: our own mailboxes."""
        if through is not None or self._ways is None or to is not None or not ids:
            return through or ""
        first = await self._store.get(ids[:1])
        origin = origin_of(first[0].message) if first else None
        return (self._ways.way_of(origin.server) or "") if origin is not None else ""

    async def _preflight(
        self, to: str | None, cap: int, through: str | None, ids: Sequence[str]
    ) -> Preflight:
        way = await self._way(to, through, ids)
        queues = None if way else await self._broker.queues()
        return Preflight(
            ways=self._ways,
            through=way,
            is_chosen=through is not None,
            now=self._clock.now(),
            cap=cap,
            to=to,
            mailboxes=None if queues is None else frozenset(queue.options.name for queue in queues),
            ledger=None if way else self._ledger,
            fits=None if way else self._fits,
            order=self._store.review_order,
        )

    async def _chosen(self, query: str | Node) -> tuple[list[str], str]:
        node = self._letters.understand(query)
        ids = await self._letters.freeze(node, limit=WIDEST)
        return ids, query if isinstance(query, str) else show(node)

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
