"""Replays behind a server: planned, started, watched."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.campaign import AT_ONCE, Campaign, Care
from deadletter.office.outcomes import Confirmed
from deadletter.office.preflight import LetterVerdicts, Plan
from deadletter.office.replay import CAP
from deadletter.office.selection import ReplayPage
from deadletter.ports import ReplayItems

from .connection import API, Connection, part
from .letters import selected

_LOOK: Final = 0.25  # seconds between two looks


class Planned(Struct, frozen=True, kw_only=True):
    """A replay and what is to be expected of it; `sendable` letters would be sent."""

    replay: Campaign
    plan: Plan
    sendable: int


class Replays:
    """The replays of one office. The server sends them, whether we look or not."""

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

        They are fixed from here on: start it by its id, or cancel it. `through` names
        a server of others in the server's settings; without, letters go back to the
        one they were drained from.
        """
        wish = _wish(
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
        return await self._connection.post(f"{API}/replays/plan", wish, Planned)

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
        Judge up to `size` letters of a plan, also those left out; `after` continues.

        Nothing is stored. `limit` counts the letters that are sent of this page on.
        """
        wish = _wish(ids, query, free_text, care, limit=limit, to=to, cap=cap, through=through)
        return await self._connection.post(
            f"{API}/replays/verdicts", wish, LetterVerdicts, after=after, limit=size
        )

    async def start(self, name: str, *, expect: int | None = None, reason: str = "") -> Campaign:
        """Start a replay that was planned."""
        said = {"expect": expect, "reason": reason}
        return await self._tell(name, "start", said)

    async def latest(self, *, limit: int = 20, after: str | None = None) -> ReplayPage:
        """Replays with their counts, latest first; `after` of the page continues."""
        return await self._connection.get(f"{API}/replays", ReplayPage, limit=limit, after=after)

    async def get(self, name: str) -> Campaign:
        """One replay and its counts, by its id or the beginning of it."""
        return await self._connection.get(f"{API}/replays/{part(name)}", Campaign)

    async def report(self, name: str, *, after: int = 0, limit: int = 100) -> ReplayItems:
        """What became of each letter of a replay, in the order they go."""
        path = f"{API}/replays/{part(name)}/report"
        return await self._connection.get(path, ReplayItems, after=after, limit=limit)

    async def verdicts(self, name: str, *, after: int = 0, limit: int = 100) -> LetterVerdicts:
        """What to expect now of each letter of a replay; `after` continues."""
        path = f"{API}/replays/{part(name)}/verdicts"
        return await self._connection.get(path, LetterVerdicts, after=after, limit=limit)

    async def pause(self, name: str, *, reason: str = "") -> Campaign:
        """Stop sending for now."""
        return await self._tell(name, "pause", {"reason": reason})

    async def resume(self, name: str, *, reason: str = "", take_over: bool = False) -> Campaign:
        """Let sending go on."""
        said = {"reason": reason, "take_over": take_over}
        return await self._tell(name, "resume", said)

    async def cancel(self, name: str, *, reason: str = "") -> Campaign:
        """Send no more of it. Letters that were not sent stay as they are."""
        return await self._tell(name, "cancel", {"reason": reason})

    async def confirm(self, message_ids: Iterable[str], *, reason: str = "") -> Confirmed:
        """Say that a consumer has handled messages that were sent back to it."""
        said = {"message_ids": list(message_ids), "reason": reason}
        return await self._connection.post(f"{API}/confirmations", said, Confirmed)

    async def watch(self, name: str, is_over: Callable[[Campaign], bool]) -> Campaign:
        """Look at a replay again and again, until it is over in somebody's eyes."""
        while not is_over(campaign := await self.get(name)):  # noqa: ASYNC110 -- of others
            await asyncio.sleep(_LOOK)
        return campaign

    async def _tell(self, name: str, verb: str, said: dict[str, Any]) -> Campaign:
        path = f"{API}/replays/{part(name)}/{verb}"
        return await self._connection.post(path, said, Campaign)


def _wish(
    ids: Iterable[str] | None, query: str | None, free_text: bool, care: Care, **more: Any
) -> dict[str, Any]:
    """Letters to send back and how, as requests say it."""
    said = None if care == AT_ONCE else msgspec.to_builtins(care)
    return selected(ids, query, free_text, care=said, **more)
