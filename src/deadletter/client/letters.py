"""Letters behind a server: searched, read, moved along, edited."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, structs

from deadletter.core.campaign import AT_ONCE, Campaign, Care
from deadletter.core.letter import Changes, LetterHead
from deadletter.core.message import Message
from deadletter.office.letters import LetterCount, Moved
from deadletter.office.outcomes import Confirmed
from deadletter.office.preflight import LetterVerdicts, Plan
from deadletter.office.replay import CAP
from deadletter.office.selection import ReplayPage
from deadletter.office.view import LetterView, Moment
from deadletter.ports import Page, ReplayItems

from .connection import API, Connection, part

PAGE: Final = 500  # the most a server gives at once


class Timeline(Struct, frozen=True, kw_only=True):
    """Everything that happened to a letter, first to last."""

    id: str
    moments: tuple[Moment, ...]
    left_out: bool = False  # there are more acts than are told here


def selected(
    ids: Iterable[str] | None, query: str | None, free_text: bool, **more: Any
) -> dict[str, Any]:
    """Some letters as requests name them: by ids, or by what a search finds."""
    named = {"ids": None if ids is None else list(ids), "query": query, **more}
    if free_text:
        named["free_text"] = True
    return {name: value for name, value in named.items() if value is not None}


class Letters:
    """
    The letters of one office.

    What changes letters takes either `ids` or a `query`; a query that throws letters
    away also takes `expect`, the number somebody has agreed to. A query names fields;
    `free_text` allows words that letters contain.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page:
        """Up to `limit` letters, newest death first; `after` of the page continues."""
        return await self._connection.get(
            f"{API}/letters", Page, query=query, limit=limit, after=after
        )

    async def count(self, query: str = "") -> LetterCount:
        """How many letters a search finds, as far as it is cheap to know."""
        return await self._connection.get(f"{API}/letters/count", LetterCount, query=query)

    async def all(self, query: str = "", *, limit: int | None = None) -> AsyncIterator[LetterHead]:
        """Everything a search finds, newest death first, page by page."""
        left, after = limit, None
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = await self.search(query, limit=size, after=after)
            for head in page.heads:
                yield head
            left = None if left is None else left - len(page.heads)
            after = page.after
            if after is None:
                return

    async def get(self, id: str, *, capture: bool = False) -> LetterView:
        """
        One letter, by its id or the beginning of it; its secrets are masked.

        With `capture` the headers of a drained letter include `dlq-found`.
        """
        asked = True if capture else None
        return await self._connection.get(_path(id), LetterView, capture=asked)

    async def timeline(self, id: str) -> Timeline:
        """A letter's whole story."""
        return await self._connection.get(_path(id, "timeline"), Timeline)

    async def message(self, id: str) -> Message:
        """A letter's message, every byte of it; goes into the audit."""
        return await self._connection.get(_path(id, "message"), Message)

    async def original(self, id: str) -> Message:
        """The message that died, whatever was edited since; goes into the audit."""
        return await self._connection.get(_path(id, "original"), Message)

    async def edit(
        self, id: str, changes: Changes, *, revision: int, reason: str = ""
    ) -> LetterView:
        """Change a letter's message, if nobody has changed it since `revision`."""
        given = {
            name: value for name, value in structs.asdict(changes).items() if value is not UNSET
        }
        return await self._connection.post(
            _path(id),
            {**given, "reason": reason},
            LetterView,
            method="PATCH",
            headers={"if-match": f'"{revision}"'},
        )

    async def review(
        self,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        reason: str = "",
    ) -> Moved:
        """Say that somebody has looked."""
        return await self._do("review", selected(ids, query, free_text, reason=reason))

    async def close(
        self,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        reason: str = "",
        unconfirmed: bool = False,
    ) -> Moved:
        """Say that they are done with; also `unconfirmed` ones if asked to."""
        chosen = selected(ids, query, free_text, reason=reason, unconfirmed=unconfirmed)
        return await self._do("close", chosen)

    async def reopen(
        self,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        reason: str = "",
        unconfirmed: bool = False,
    ) -> Moved:
        """Make them pending again; also `unconfirmed` ones if asked to."""
        chosen = selected(ids, query, free_text, reason=reason, unconfirmed=unconfirmed)
        return await self._do("reopen", chosen)

    async def note(
        self,
        text: str,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
    ) -> Moved:
        """Write a note on them, for whoever looks next."""
        return await self._do("notes", selected(ids, query, free_text, text=text))

    async def discard(
        self,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        expect: int | None = None,
        reason: str = "",
        unconfirmed: bool = False,
    ) -> Moved:
        """
        Throw them away; they can be restored until they are purged.

        Also `unconfirmed` ones if asked to.
        """
        chosen = selected(
            ids, query, free_text, expect=expect, reason=reason, unconfirmed=unconfirmed
        )
        return await self._do("discard", chosen)

    async def restore(
        self,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        reason: str = "",
    ) -> Moved:
        """Take them out of the bin."""
        return await self._do("restore", selected(ids, query, free_text, reason=reason))

    async def purge(
        self,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        expect: int | None = None,
        reason: str,
    ) -> Moved:
        """Delete them for good."""
        chosen = selected(ids, query, free_text, expect=expect, reason=reason)
        return await self._do("purge", chosen)

    async def _do(self, verb: str, chosen: dict[str, Any]) -> Moved:
        return await self._connection.post(f"{API}/letters/{verb}", chosen, Moved)


def _path(id: str, *more: str) -> str:
    return "/".join([f"{API}/letters", part(id), *more])


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
