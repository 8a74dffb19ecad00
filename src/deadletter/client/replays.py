"""Replays behind a server: plan, start and watch them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.campaign import (
    AT_ONCE,
    Campaign,
    CampaignState,
    Care,
    Outcome,
    Verdict,
    unsent,
    unsettled,
)
from deadletter.core.errors import ConfigError
from deadletter.core.letter import By
from deadletter.office.aftermath import Aftermath
from deadletter.office.outcomes import Confirmed
from deadletter.office.preflight import LetterVerdict, LetterVerdicts, Plan
from deadletter.office.progress import ReplayProgress
from deadletter.office.replay import Progress
from deadletter.office.replay_plans import PlanWish
from deadletter.office.replay_steps import PATIENCE
from deadletter.office.replay_verdicts import CAP
from deadletter.office.replays import ReplayRequest
from deadletter.office.selection import Chosen, ReplayPage
from deadletter.ports import ReplayItems
from deadletter.wiring.foreign import server_label

from .connection import API, Connection, part
from .letters import selected

if TYPE_CHECKING:
    from .client import Client


_POLL: Final = 0.25  # seconds between two requests for the state of a replay


class Planned(Struct, frozen=True, kw_only=True):
    """A planned replay and its expected result; `sendable` letters would be sent."""

    replay: Campaign
    plan: Plan
    sendable: int


class Replays:
    """The replays of one office. The server sends the letters."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def plan(
        self,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        limit: int | None = None,
        expect: int | None = None,
        to: str | None = None,
        rate: float | None = None,
        cap: int = CAP,
        care: Care = AT_ONCE,
        through: str | None = None,
        reason: str = "",
    ) -> Planned:
        """
        Choose the letters of a replay, with a verdict for each; nothing is sent yet.

        The letters are fixed now: start the replay by its id, or cancel it. `through`
        names a source in the settings of the server; without it, drained letters return
        to the server that they came from.
        """
        body = _replay_body(
            ids,
            query,
            free_text,
            care,
            limit=limit,
            expect=expect,
            to=to,
            rate=rate,
            cap=cap,
            through=through,
            reason=reason,
        )
        return await self._connection.post(f"{API}/replays/plan", body, Planned)

    async def freeze(
        self,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        limit: int | None = None,
        expect: int | None = None,
        to: str | None = None,
        rate: float | None = None,
        cap: int = CAP,
        care: Care = AT_ONCE,
        through: str | None = None,
        reason: str = "",
    ) -> Campaign:
        """
        Choose the letters of a replay at once; the server judges them in the background.

        `Campaign.plan` says how many are judged so far. It can be started when all are.
        """
        body = _replay_body(
            ids,
            query,
            free_text,
            care,
            limit=limit,
            expect=expect,
            to=to,
            rate=rate,
            cap=cap,
            through=through,
            reason=reason,
        )
        return await self._connection.post(f"{API}/replays/freeze", body, Campaign)

    async def agree(
        self,
        name: str,
        *,
        leave_out: Iterable[Verdict] = (),
        include: Iterable[Verdict] = (),
        care: Care | None = None,
        expect: int | None = None,
        reason: str = "",
    ) -> Campaign:
        """Change which verdicts a judged replay leaves out or includes, before its start."""
        body = {
            "leave_out": list(leave_out),
            "include": list(include),
            "care": None if care is None else msgspec.to_builtins(care),
            "expect": expect,
            "reason": reason,
        }
        return await self._post(name, "agree", body)

    async def judge(
        self,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        limit: int | None = None,
        to: str | None = None,
        cap: int = CAP,
        care: Care = AT_ONCE,
        through: str | None = None,
        after: int = 0,
        size: int = 500,
    ) -> LetterVerdicts:
        """
        Return verdicts of up to `size` letters of a plan; `after` continues.

        Letters that would be left out are included. Nothing is stored. `limit` counts
        the letters that would be sent, from this page on.
        """
        body = _replay_body(
            ids, query, free_text, care, limit=limit, to=to, cap=cap, through=through
        )
        return await self._connection.post(
            f"{API}/replays/verdicts", body, LetterVerdicts, after=after, limit=size
        )

    async def start(self, name: str, *, expect: int | None = None, reason: str = "") -> Campaign:
        """Start a planned replay."""
        return await self._post(name, "start", {"expect": expect, "reason": reason})

    async def latest(self, *, limit: int = 20, after: str | None = None) -> ReplayPage:
        """Return replays with their counts, latest first; `after` continues a page."""
        return await self._connection.get(f"{API}/replays", ReplayPage, limit=limit, after=after)

    async def get(self, name: str) -> Campaign:
        """Return one replay and its counts, by its id or the beginning of it."""
        return await self._connection.get(f"{API}/replays/{part(name)}", Campaign)

    async def report(
        self, name: str, *, after: int = 0, limit: int = 100, only: Iterable[Outcome] = ()
    ) -> ReplayItems:
        """Return the outcome of each letter of a replay, in sending order."""
        path = f"{API}/replays/{part(name)}/report"
        return await self._connection.get(
            path, ReplayItems, after=after, limit=limit, outcome=[one.value for one in only]
        )

    async def verdicts(
        self, name: str, *, verdict: Verdict | None = None, after: int = 0, limit: int = 100
    ) -> LetterVerdicts:
        """Return the verdict on each letter of a replay, or those of one; `after` continues."""
        path = f"{API}/replays/{part(name)}/verdicts"
        return await self._connection.get(
            path, LetterVerdicts, verdict=verdict, after=after, limit=limit
        )

    async def approve(self, name: str, *, expect: int | None = None, reason: str = "") -> Campaign:
        """Agree to a replay that somebody else planned."""
        return await self._post(name, "approve", {"expect": expect, "reason": reason})

    async def progress(self, name: str) -> ReplayProgress:
        """Return the stages of a replay, how far it is, and why it is paused."""
        path = f"{API}/replays/{part(name)}/progress"
        return await self._connection.get(path, ReplayProgress)

    async def aftermath(self, name: str) -> Aftermath:
        """Return why letters of a replay failed again, by cause."""
        path = f"{API}/replays/{part(name)}/aftermath"
        return await self._connection.get(path, Aftermath)

    async def pause(self, name: str, *, reason: str = "") -> Campaign:
        """Stop sending until the replay is resumed."""
        return await self._post(name, "pause", {"reason": reason})

    async def resume(self, name: str, *, reason: str = "", take_over: bool = False) -> Campaign:
        """Continue a replay."""
        return await self._post(name, "resume", {"reason": reason, "take_over": take_over})

    async def cancel(self, name: str, *, reason: str = "") -> Campaign:
        """End a replay. Letters that were not sent keep their state."""
        return await self._post(name, "cancel", {"reason": reason})

    async def confirm(self, message_ids: Iterable[str], *, reason: str = "") -> Confirmed:
        """Confirm that a consumer has handled messages that were sent back to it."""
        body = {"message_ids": list(message_ids), "reason": reason}
        return await self._connection.post(f"{API}/confirmations", body, Confirmed)

    async def watch(self, name: str, is_over: Callable[[Campaign], bool]) -> Campaign:
        """Poll a replay until `is_over` returns true for it; return it."""
        while not is_over(campaign := await self.get(name)):  # noqa: ASYNC110 -- remote
            await asyncio.sleep(_POLL)
        return campaign

    async def _post(self, name: str, verb: str, body: dict[str, Any]) -> Campaign:
        path = f"{API}/replays/{part(name)}/{verb}"
        return await self._connection.post(path, body, Campaign)


def _replay_body(
    ids: Iterable[str] | None, query: str | None, free_text: bool, care: Care, **more: Any
) -> dict[str, Any]:
    """Return the body of a request to plan a replay."""
    steps = None if care == AT_ONCE else msgspec.to_builtins(care)
    return selected(ids, query, free_text, care=steps, **more)


class RemoteReplays:
    """
    The replays of an office behind a server. The server sends the letters.

    To return verdicts, the server records a planned replay. `forget` cancels the planned
    replays that were not started.
    """

    def __init__(self, client: "Client") -> None:
        self._replays = client.replays
        self._planned: dict[str, tuple[ReplayRequest, Planned]] = {}

    def name_server(self, text: str) -> str:
        """Return the name; raises `ConfigError` for a URL, which a server never opens."""
        if "://" in text:
            raise ConfigError(
                f"--through {server_label(text)} is a URL: a server sends letters only"
                " through servers that its settings name. Give the NAME of [sources.NAME]"
            )
        return text

    async def check_server(self, request: ReplayRequest) -> None:
        """Do nothing: the server checks the letters when it plans the replay."""

    async def plan(self, request: ReplayRequest) -> Plan:
        """Return what a replay would do; the server keeps it as a planned replay."""
        return (await self._plan(request)).plan

    async def verdicts(self, request: ReplayRequest) -> AsyncIterator[Sequence[LetterVerdict]]:
        """Iterate over the verdict of each letter, some at a time."""
        left, after = request.limit, 0
        while True:
            page = await self._replays.judge(
                **_named(request.chosen),
                limit=left,
                to=request.to,
                cap=request.cap,
                care=request.care,
                through=request.through,
                after=after,
            )
            yield page.letters
            if left is not None:
                left -= sum(request.care.sends(one.verdict) for one in page.letters)
            if page.after is None or left == 0:
                return
            after = page.after

    async def begin(self, request: ReplayRequest, *, hold: bool = False) -> Campaign:
        """Start a replay, or with `hold` leave it planned."""
        replay = (await self._plan(request)).replay
        if not hold:
            replay = await self._replays.start(replay.id, reason=request.by.reason)
        del self._planned[replay.id]
        return replay

    async def freeze(self, request: ReplayRequest) -> Campaign:
        """Record a planned replay at once; the server judges its letters."""
        return await self._replays.freeze(**_wish(request))

    async def judge(
        self,
        campaign_id: str,
        *,
        stop: asyncio.Event | None = None,
        on_progress: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        """Wait until the server has judged the letters of a replay, or `stop` is set."""

        def is_over(now: Campaign) -> bool:
            if on_progress is not None:
                on_progress(now)
            is_stopped = stop is not None and stop.is_set()
            is_judged = now.plan is None or now.plan.is_judged
            return is_stopped or is_judged or now.state is not CampaignState.PLANNED

        return await self._replays.watch(campaign_id, is_over)

    async def kept_verdicts(
        self, campaign_id: str, *, verdict: Verdict | None = None, after: int = 0, limit: int = 100
    ) -> LetterVerdicts:
        """Return verdicts on letters of a replay, in sending order; `after` continues."""
        return await self._replays.verdicts(campaign_id, verdict=verdict, after=after, limit=limit)

    async def agree(
        self, campaign_id: str, by: By, wish: PlanWish, *, expect: int | None = None
    ) -> Campaign:
        """Change which verdicts a judged replay leaves out or includes."""
        return await self._replays.agree(
            campaign_id,
            leave_out=wish.leave_out,
            include=wish.include,
            care=wish.care,
            expect=expect,
            reason=by.reason,
        )

    async def approve(self, campaign_id: str, by: By, *, expect: int | None = None) -> Campaign:
        """Agree to a replay that somebody else planned."""
        return await self._replays.approve(campaign_id, expect=expect, reason=by.reason)

    async def progress(self, campaign_id: str) -> ReplayProgress:
        """Return the stages of a replay, how far it is, and why it is paused."""
        return await self._replays.progress(campaign_id)

    async def aftermath(self, campaign_id: str) -> Aftermath:
        """Return why letters of a replay failed again, by cause."""
        return await self._replays.aftermath(campaign_id)

    async def forget(self) -> None:
        """Cancel the replays that were planned only to see their verdicts."""
        for id_ in self._planned:
            await self._replays.cancel(id_, reason="only planned, to look at it")

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
        """Wait until the server has sent the rest of a replay, or `stop` is set."""
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
        """Return a replay and its counts, by its id or the beginning of it."""
        return await self._replays.get(campaign_id)

    async def page(self, *, limit: int = 20, after: str | None = None) -> ReplayPage:
        """Return replays with their counts, latest first; `after` continues a page."""
        return await self._replays.latest(limit=limit, after=after)

    async def pause(self, campaign_id: str, by: By) -> Campaign:
        """Stop sending until the replay is resumed."""
        return await self._replays.pause(campaign_id, reason=by.reason)

    async def resume(
        self, campaign_id: str, by: By, *, rate: float | None = None, take_over: bool = False
    ) -> Campaign:
        """Continue a replay; the server sends the rest, at the planned rate."""
        if rate is not None:
            raise ConfigError(
                "--rate cannot be combined with --server: a server keeps the planned rate"
            )
        return await self._replays.resume(campaign_id, reason=by.reason, take_over=take_over)

    async def cancel(self, campaign_id: str, by: By) -> Campaign:
        """End a replay. Letters that were not sent keep their state."""
        return await self._replays.cancel(campaign_id, reason=by.reason)

    async def outcomes(
        self, campaign_id: str, *, after: int = 0, limit: int = 100, only: Collection[Outcome] = ()
    ) -> ReplayItems:
        """Return the outcomes of some letters, in sending order; `after` continues."""
        return await self._replays.report(campaign_id, after=after, limit=limit, only=only)

    async def confirm(self, message_ids: Sequence[str], by: By) -> Confirmed:
        """Confirm that consumers have handled messages that were sent back to them."""
        return await self._replays.confirm(message_ids, reason=by.reason)

    async def wait_confirmed(
        self,
        campaign_id: str,
        *,
        timeout: float,  # noqa: ASYNC109 -- a timeout is a result, not an error
        stop: asyncio.Event | None = None,
        on_look: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        """Wait until all sent letters have an outcome, for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout

        def is_over(now: Campaign) -> bool:
            if on_look is not None:
                on_look(now)
            stopped = stop is not None and stop.is_set()
            return stopped or not unsettled(now) or time.monotonic() >= deadline

        return await self._replays.watch(campaign_id, is_over)

    async def _plan(self, request: ReplayRequest) -> Planned:
        for known, planned in self._planned.values():
            if known == request:
                return planned
        planned = await self._replays.plan(**_wish(request))
        self._planned[planned.replay.id] = request, planned
        return planned


def _wish(request: ReplayRequest) -> dict[str, Any]:
    """Return how a request to plan a replay names its letters, and how to send them."""
    chosen = request.chosen
    is_search = bool(chosen.query)
    return {
        **_named(chosen),
        "limit": request.limit,
        # Fails if the number changed in the meantime; with a limit it may differ.
        "expect": len(chosen.ids) if is_search and request.limit is None else None,
        "to": request.to,
        "rate": request.rate,
        "cap": request.cap,
        "care": request.care,
        "through": request.through,
        "reason": request.by.reason,
    }


def _named(chosen: Chosen) -> dict[str, Any]:
    """Return how a request names letters; free words have been checked already."""
    if chosen.query:
        return {"query": chosen.query, "free_text": True}
    return {"ids": chosen.ids}
