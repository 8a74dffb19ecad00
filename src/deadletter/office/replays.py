"""The replays of an office, as a person plans, starts and watches them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Protocol

from msgspec import Struct

from deadletter.core.campaign import AT_ONCE, Campaign, Care, Outcome, Verdict
from deadletter.core.errors import ConfigError
from deadletter.core.letter import By, State, sources_of
from deadletter.ports import Clock, LetterStore, ReplayItems, WaysBack

from .aftermath import Aftermath, load_aftermath
from .approval import approve
from .batches import whole_letters
from .outcomes import Confirmed, confirm_messages
from .preflight import LetterVerdict, LetterVerdicts, Plan, target_of
from .progress import ReplayProgress, load_progress
from .replay import Progress, Replay
from .replay_plans import PlanWish
from .replay_steps import PATIENCE
from .replay_verdicts import CAP
from .selection import Chosen, ReplayPage, Selected, check_not_elsewhere


class ReplayRequest(Struct, frozen=True, kw_only=True):
    """
    The letters of a replay, and how to send them.

    Without `to` and `through`, each letter goes back to the mailbox it came from.
    """

    chosen: Chosen
    by: By
    limit: int | None = None  # the most letters to send, oldest first
    to: str | None = None  # another mailbox than each letter's own
    cap: int = CAP  # replays of one letter before it is quarantined instead
    rate: float | None = None  # the most letters per second; None: unlimited
    care: Care = AT_ONCE
    through: str | None = None  # the name of another server; None: where they came from


class OtherServers(WaysBack, Protocol):
    """Other servers that letters can go back to, which a person may name."""

    def named(self, text: str) -> str:
        """Return the name of a server given by its name in the settings or its URL."""


class ReplaysProtocol(Protocol):
    """The replays of an office: `Replays` here, or the same over HTTP."""

    def name_server(self, text: str) -> str:
        """Return the name under which `ReplayRequest.through` knows another server."""

    async def check_server(self, request: ReplayRequest) -> None:
        """Raise `Refused` if a letter cannot go back through the server of the request."""

    async def plan(self, request: ReplayRequest) -> Plan:
        """Return what a replay would do: the number of letters by verdict. Sends nothing."""

    def verdicts(self, request: ReplayRequest) -> AsyncIterator[Sequence[LetterVerdict]]:
        """Iterate over the verdict of each letter, some at a time. Sends nothing."""

    async def begin(self, request: ReplayRequest, *, hold: bool = False) -> Campaign:
        """
        Record a replay of these letters; `run` sends them.

        Args:
            request: The letters, and how to send them.
            hold: Only plan it: nothing is sent before `resume`.
        """

    async def freeze(self, request: ReplayRequest) -> Campaign:
        """
        Record a planned replay at once, and judge its letters afterwards.

        `Campaign.plan` says how many letters are judged. Over HTTP the server judges them;
        here `judge` does. Nothing is sent before it is started.
        """

    async def judge(
        self,
        campaign_id: str,
        *,
        stop: asyncio.Event | None = None,
        on_progress: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        """Judge the letters of a frozen replay; over HTTP, wait until the server has."""

    async def kept_verdicts(
        self, campaign_id: str, *, verdict: Verdict | None = None, after: int = 0, limit: int = 100
    ) -> LetterVerdicts:
        """Return verdicts on letters of a replay, in sending order; `after` continues."""

    async def agree(
        self, campaign_id: str, by: By, wish: PlanWish, *, expect: int | None = None
    ) -> Campaign:
        """
        Change which verdicts a judged replay leaves out or includes; `resume` starts it.

        Args:
            campaign_id: The id of the replay, or the beginning of it.
            by: Who starts it, and why.
            wish: The verdicts to leave out and to include, and other precautions.
            expect: Raise Conflict unless exactly this many letters would be sent.
        """

    async def approve(self, campaign_id: str, by: By, *, expect: int | None = None) -> Campaign:
        """
        Agree to a replay that somebody else planned, where many letters need two people.

        Args:
            campaign_id: The id of the replay, or the beginning of it.
            by: Who agrees, and why.
            expect: Raise Conflict unless exactly this many letters would be sent.
        """

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
        Send the rest of a replay; over HTTP, wait until the server has sent it.

        Args:
            campaign_id: The id of the replay, or the beginning of it.
            rate: The most letters per second, instead of the planned rate.
            stop: Stop after the current batch once this is set.
            on_progress: Called with the number of letters just sent.
            on_wait: Called with the number of outcomes that the replay waits for.
            patience: Pause after this many seconds without any outcome.
        """

    async def status(self, campaign_id: str) -> Campaign:
        """Return a replay and its counts, by its id or the beginning of it."""

    async def progress(self, campaign_id: str) -> ReplayProgress:
        """Return the stages of a replay, how far it is, and why it is paused."""

    async def aftermath(self, campaign_id: str) -> Aftermath:
        """Return why letters of a replay failed again, by cause."""

    async def page(self, *, limit: int = 20, after: str | None = None) -> ReplayPage:
        """Return replays with their counts, latest first; `after` continues a page."""

    async def pause(self, campaign_id: str, by: By) -> Campaign:
        """Stop sending until the replay is resumed."""

    async def resume(
        self, campaign_id: str, by: By, *, rate: float | None = None, take_over: bool = False
    ) -> Campaign:
        """
        Continue a replay that is planned or paused.

        Args:
            campaign_id: The id of the replay, or the beginning of it.
            by: Who continues it, and why.
            rate: Another rate; only where this process sends.
            take_over: Continue a running replay whose sender is gone.
        """

    async def cancel(self, campaign_id: str, by: By) -> Campaign:
        """End a replay. Letters that were not sent keep their state."""

    async def outcomes(
        self, campaign_id: str, *, after: int = 0, limit: int = 100, only: Collection[Outcome] = ()
    ) -> ReplayItems:
        """
        Return the outcomes of some letters, in sending order.

        Args:
            campaign_id: The id of the replay.
            after: The `after` of the previous page, to continue it.
            limit: The most letters on the page.
            only: Only letters with one of these outcomes.
        """

    async def confirm(self, message_ids: Sequence[str], by: By) -> Confirmed:
        """Confirm that consumers have handled messages that were sent back to them."""

    async def wait_confirmed(
        self,
        campaign_id: str,
        *,
        timeout: float,  # noqa: ASYNC109 -- a timeout is an answer here, not an error
        stop: asyncio.Event | None = None,
        on_look: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        """Wait until all sent letters have an outcome, for at most `timeout` seconds."""


class Replays:
    """
    The replays of an office that is open in this process.

    `sender` is the machinery that chooses, sends and watches letters.
    """

    def __init__(
        self, store: LetterStore, sender: Replay, clock: Clock, servers: OtherServers | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self.sender = sender
        self._servers = servers
        self._planned: tuple[ReplayRequest, Selected] | None = None
        self.run = sender.run
        self.status = sender.status
        self.page = sender.page
        self.pause = sender.pause
        self.cancel = sender.cancel
        self.wait_confirmed = sender.wait_confirmed

    def name_server(self, text: str) -> str:
        """Return the name of another server; raises `ConfigError` if none is known."""
        if self._servers is None:
            raise ConfigError(
                f"this office knows no other server, got {text!r}: name it in settings"
            )
        return self._servers.named(text)

    async def check_server(self, request: ReplayRequest) -> None:
        """Raise `Refused` if a letter cannot go back through the server of the request."""
        if request.through is None or self._servers is None:
            return
        order = self._store.review_order
        async for letters in whole_letters(self._store, request.chosen.ids):
            for letter in letters:
                if letter.head.state in sources_of(State.REPLAYING, order):  # others are not sent
                    target = target_of(letter.head, request.to)
                    self._servers.check(request.through, letter.message, target)

    async def select(self, request: ReplayRequest) -> Selected:
        """Judge the letters of a request, and choose those to send."""
        return await self.sender.select(
            request.chosen.ids,
            query=request.chosen.said,
            to=request.to,
            cap=request.cap,
            limit=request.limit,
            care=request.care,
            more=request.chosen.more,
            through=request.through,
        )

    async def plan(self, request: ReplayRequest) -> Plan:
        """Return what a replay would do: the number of letters by verdict."""
        selected = await self.select(request)
        self._planned = request, selected  # `begin` sends what the plan showed
        return selected.plan

    async def verdicts(self, request: ReplayRequest) -> AsyncIterator[Sequence[LetterVerdict]]:
        """Iterate over the verdict of each letter, some at a time."""
        async for some in self.sender.verdicts(
            await self._store.sent_order(request.chosen.ids),
            to=request.to,
            cap=request.cap,
            limit=request.limit,
            care=request.care,
            through=request.through,
        ):
            yield some

    async def verdicts_page(
        self, request: ReplayRequest, *, after: int = 0, size: int = 100
    ) -> LetterVerdicts:
        """Judge up to `size` letters of a request, in sending order; `after` continues."""
        return await self.sender.verdicts_page(
            request.chosen.ids,
            after=after,
            size=size,
            to=request.to,
            cap=request.cap,
            limit=request.limit,
            care=request.care,
            through=request.through,
        )

    async def begin(
        self, request: ReplayRequest, *, hold: bool = False, selected: Selected | None = None
    ) -> Campaign:
        """Record a replay; raises `Conflict` if its letters belong to unknown servers."""
        planned, self._planned = self._planned, None
        if selected is None:
            is_planned = planned is not None and planned[0] is request
            selected = planned[1] if planned and is_planned else await self.select(request)
        check_not_elsewhere(selected)
        campaign = await self.sender.begin(
            selected.ids,
            request.by,
            query=request.chosen.said,
            to=request.to,
            cap=request.cap,
            rate=request.rate,
            care=request.care,
            hold=hold,
            through=selected.plan.through,
        )
        return await self.sender.status(campaign.id)  # now with its counts

    async def freeze(self, request: ReplayRequest) -> Campaign:
        """Record a planned replay whose letters `judge` judges afterwards."""
        return await self.sender.freeze(
            request.chosen.ids,
            request.by,
            query=request.chosen.said,
            to=request.to,
            cap=request.cap,
            limit=request.limit,
            rate=request.rate,
            care=request.care,
            more=request.chosen.more,
            through=request.through,
        )

    async def judge(
        self,
        campaign_id: str,
        *,
        stop: asyncio.Event | None = None,
        on_progress: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        """Judge the letters of a frozen replay, until all are judged or `stop` is set."""
        is_more = True
        while is_more and not (stop is not None and stop.is_set()):
            is_more = await self.sender.judge_some(campaign_id)
            if on_progress is not None:
                on_progress(await self.sender.status(campaign_id))
        return await self.sender.status(campaign_id)

    async def kept_verdicts(
        self, campaign_id: str, *, verdict: Verdict | None = None, after: int = 0, limit: int = 100
    ) -> LetterVerdicts:
        """Return verdicts on letters of a replay, in sending order; `after` continues."""
        campaign = await self.sender.status(campaign_id)
        return await self.sender.verdicts_of(campaign, verdict=verdict, after=after, limit=limit)

    async def agree(
        self, campaign_id: str, by: By, wish: PlanWish, *, expect: int | None = None
    ) -> Campaign:
        """Change which verdicts a judged replay leaves out or includes."""
        return await self.sender.agree(campaign_id, by, wish, expect=expect)

    async def approve(self, campaign_id: str, by: By, *, expect: int | None = None) -> Campaign:
        """Agree to a replay that somebody else planned."""
        campaign = await self.sender.status(campaign_id)
        await approve(self._store, campaign, by, expect=expect)
        return await self.sender.status(campaign.id)

    async def progress(self, campaign_id: str) -> ReplayProgress:
        """Return the stages of a replay, how far it is, and why it is paused."""
        campaign = await self.sender.status(campaign_id)
        return await load_progress(self._store, campaign, self._clock.now())

    async def aftermath(self, campaign_id: str, *, sources: Sequence[str] = ()) -> Aftermath:
        """Return why letters of a replay failed again; with `sources` only letters of these."""
        campaign = await self.sender.status(campaign_id)
        return await load_aftermath(self._store, campaign, sources=sources)

    async def resume(
        self, campaign_id: str, by: By, *, rate: float | None = None, take_over: bool = False
    ) -> Campaign:
        """Continue a replay; `run` sends the rest, at another `rate` if it is given one."""
        return await self.sender.resume(campaign_id, by, take_over=take_over)

    async def outcomes(
        self, campaign_id: str, *, after: int = 0, limit: int = 100, only: Collection[Outcome] = ()
    ) -> ReplayItems:
        """Return the outcomes of some letters, in sending order; `after` continues."""
        outcomes = frozenset(only) if only else None
        return await self._store.campaign_items(
            campaign_id, after=after, limit=limit, outcomes=outcomes
        )

    async def confirm(
        self, message_ids: Sequence[str], by: By, *, sources: Sequence[str] = ()
    ) -> Confirmed:
        """Confirm that consumers have handled messages; with `sources` only of these."""
        return await confirm_messages(self._store, message_ids, by, sources=sources)
