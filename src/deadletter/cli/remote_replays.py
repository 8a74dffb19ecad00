"""The replays of an office behind a server, which sends them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from deadletter.client import Client
from deadletter.client.replays import Planned
from deadletter.core.campaign import Campaign, CampaignState, unsent, unsettled
from deadletter.core.errors import ConfigError
from deadletter.core.letter import By
from deadletter.office.campaigns import ReplayPage
from deadletter.office.choosing import Chosen
from deadletter.office.preflight import LetterVerdict, Plan
from deadletter.office.watch import PATIENCE

from .office import Wish


class RemoteReplays:
    """
    Replays that are planned, started and watched through a server.

    To judge letters the server freezes them as a replay that waits for its start.
    One that nobody starts is cancelled by `forget`.
    """

    def __init__(self, client: Client) -> None:
        self._replays = client.replays
        self._planned: dict[str, tuple[Wish, Planned]] = {}

    async def plan(self, wish: Wish) -> Plan:
        return (await self._plan(wish)).plan

    async def verdicts(self, wish: Wish) -> AsyncIterator[Sequence[LetterVerdict]]:
        left, after = wish.limit, 0
        while True:
            page = await self._replays.judge(
                **_named(wish.chosen),
                limit=left,
                to=wish.to,
                cap=wish.cap,
                care=wish.care,
                through=wish.through,
                after=after,
            )
            yield page.letters
            if left is not None:
                left -= sum(wish.care.sends(one.verdict) for one in page.letters)
            if page.after is None or left == 0:
                return
            after = page.after

    async def begin(self, wish: Wish, *, hold: bool = False) -> Campaign:
        replay = (await self._plan(wish)).replay
        if not hold:
            replay = await self._replays.start(replay.id, reason=wish.by.reason)
        del self._planned[replay.id]
        return replay

    async def forget(self) -> None:
        """Take back what was only planned to see what it would do."""
        for id_ in self._planned:
            await self._replays.cancel(id_, reason="only planned, to look at it")

    async def run(
        self,
        campaign_id: str,
        *,
        rate: float | None = None,
        stop: asyncio.Event | None = None,
        on_progress: Callable[[int], None] | None = None,
        on_wait: Callable[[int], None] | None = None,
        patience: float = PATIENCE,
    ) -> Campaign:
        left: int | None = None

        def is_over(now: Campaign) -> bool:
            nonlocal left
            sent = 0 if left is None else left - unsent(now)
            if on_progress is not None and sent:
                on_progress(sent)
            elif on_wait is not None and unsettled(now):
                on_wait(unsettled(now))
            left = unsent(now)
            stopped = stop is not None and stop.is_set()
            return stopped or not left or now.state is not CampaignState.RUNNING

        return await self._replays.watch(campaign_id, is_over)

    async def status(self, campaign_id: str) -> Campaign:
        return await self._replays.get(campaign_id)

    async def page(self, *, limit: int = 20, after: str | None = None) -> ReplayPage:
        return await self._replays.latest(limit=limit, after=after)

    async def pause(self, campaign_id: str, by: By) -> Campaign:
        return await self._replays.pause(campaign_id, reason=by.reason)

    async def resume(
        self,
        campaign_id: str,
        by: By,
        *,
        rate: float | None = None,
        take_over: bool = False,
    ) -> Campaign:
        """Have the server go on."""
        if rate is not None:
            raise ConfigError(
                "what a server sends keeps the rate it was planned with: leave --rate"
            )
        return await self._replays.resume(
            campaign_id, reason=by.reason, take_over=take_over
        )

    async def cancel(self, campaign_id: str, by: By) -> Campaign:
        return await self._replays.cancel(campaign_id, reason=by.reason)

    async def wait_confirmed(
        self,
        campaign_id: str,
        *,
        timeout: float,  # noqa: ASYNC109 -- running out of it is an answer, not an error
        stop: asyncio.Event | None = None,
        on_look: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        deadline = time.monotonic() + timeout

        def is_over(now: Campaign) -> bool:
            if on_look is not None:
                on_look(now)
            stopped = stop is not None and stop.is_set()
            return stopped or not unsettled(now) or time.monotonic() >= deadline

        return await self._replays.watch(campaign_id, is_over)

    async def _plan(self, wish: Wish) -> Planned:
        for known, planned in self._planned.values():
            if known == wish:
                return planned
        chosen, count = wish.chosen, len(wish.chosen.ids)
        found = bool(chosen.query)
        planned = await self._replays.plan(
            **_named(chosen),
            limit=wish.limit,
            # Else somebody else was faster; a limit says how many anyway.
            expect=count if found and wish.limit is None else None,
            to=wish.to,
            rate=wish.rate,
            cap=wish.cap,
            care=wish.care,
            through=wish.through,
            reason=wish.by.reason,
        )
        self._planned[planned.replay.id] = wish, planned
        return planned


def _named(chosen: Chosen) -> dict[str, Any]:
    """Letters as requests name them; whether words may stand there was asked here."""
    if chosen.query:
        return {"query": chosen.query, "free_text": True}
    return {"ids": chosen.ids}
