"""Verdicts on the letters of replays, before anything is sent: of plans, kept or only shown."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from deadletter.core.campaign import AT_ONCE, Campaign, Care, KeptPlan, Verdict, checked
from deadletter.core.letter import By
from deadletter.core.query import show
from deadletter.core.query.ast import Node
from deadletter.intake.dialects import origin_of
from deadletter.ports import Clock, Ledger, LetterStore, Outlet, WaysBack

from .preflight import Fits, LetterVerdict, LetterVerdicts, Plan, Preflight, name_verdicts
from .replay_plans import PlanWish, ReplayPlans
from .selection import MOST, WIDEST, Campaigns, Selected, judged, select

CAP: Final = 5


class JudgedCampaigns(Campaigns):
    """The campaigns of one office, and the verdicts on their letters."""

    def __init__(
        self,
        store: LetterStore,
        broker: Outlet,
        clock: Clock,
        ledger: Ledger | None,
        *,
        fits: Fits | None,
        ways: WaysBack | None,
    ) -> None:
        super().__init__(store, clock)
        self._broker = broker
        self._ledger = ledger
        self._fits = fits
        self._ways = ways
        self.plans = ReplayPlans(store, clock, self._preflight_of)

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
        self,
        campaign: Campaign,
        *,
        verdict: Verdict | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> LetterVerdicts:
        """
        Return the verdicts on some letters of a campaign, in sending order.

        They are those of its kept plan, or else the current ones. With `verdict`, only these
        letters; a page of current verdicts may then be short although more follow.
        """
        if campaign.plan is not None:
            return await self.plans.verdicts(campaign, verdict=verdict, after=after, limit=limit)
        page = await self._store.campaign_items(campaign.id, after=after, limit=limit)
        ids = [item.letter_id for item in page.items]
        found: list[LetterVerdict] = []
        to, cap, through = campaign.to, campaign.cap, campaign.through
        async for some in self.verdicts(ids, to=to, cap=cap, through=through):
            found += (one for one in some if verdict in {None, one.verdict})
        return LetterVerdicts(tuple(found), page.after)

    async def judge_some(self, campaign_id: str) -> bool:
        """Judge the next letters of a kept plan; return whether some are left."""
        return await self.plans.judge_some(await self.status(campaign_id))

    async def agree(
        self, campaign_id: str, by: By, wish: PlanWish, *, expect: int | None = None
    ) -> Campaign:
        """Apply a wish to a kept plan that somebody is about to start."""
        return await self.plans.agree(await self.status(campaign_id), by, wish, expect=expect)

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
        return await self._preflight_through(way, to, cap, is_chosen=through is not None)

    async def _preflight_of(self, campaign: Campaign, plan: KeptPlan) -> Preflight:
        return await self._preflight_through(
            campaign.through, campaign.to, campaign.cap, is_chosen=plan.names_server
        )

    async def _preflight_through(
        self, way: str, to: str | None, cap: int, *, is_chosen: bool
    ) -> Preflight:
        queues = None if way else await self._broker.queues()
        return Preflight(
            ways=self._ways,
            through=way,
            is_chosen=is_chosen,
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
