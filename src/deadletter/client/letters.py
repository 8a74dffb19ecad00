"""Letters behind a server: search, read, change and edit them."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from msgspec import UNSET, Struct, structs

from deadletter.core.letter import By, Changes, LetterHead, State
from deadletter.core.message import Message
from deadletter.core.query import show
from deadletter.core.query.ast import Node
from deadletter.office.batches import PATIENCE as SEARCH_PATIENCE
from deadletter.office.batches import batched
from deadletter.office.diff import differences
from deadletter.office.exports import unpack_files
from deadletter.office.letters_protocol import LetterCount, LetterDetails
from deadletter.office.verbs import LetterVerbs, Moved, Verb
from deadletter.office.view import LetterView, Moment, view_message
from deadletter.ports import Page

from .connection import API, Connection, part

if TYPE_CHECKING:
    from .client import Client

PAGE: Final = 500  # letters, the largest page of a server
_NAMED: Final = 5_000  # letters in one request


class Timeline(Struct, frozen=True, kw_only=True):
    """Everything that happened to a letter, first to last."""

    id: str
    moments: tuple[Moment, ...]
    left_out: bool = False  # the audit has more entries about the letter


class Which(TypedDict, total=False):
    """A search that chooses letters, instead of their ids."""

    query: str | None
    free_text: bool  # allow words without a field, which match the text of letters


def selected(
    ids: Iterable[str] | None, query: str | None, free_text: bool, **more: Any
) -> dict[str, Any]:
    """Return how a request names letters: by ids, or by a search."""
    named = {"ids": None if ids is None else list(ids), "query": query, **more}
    if free_text:
        named["free_text"] = True
    return {name: value for name, value in named.items() if value is not None}


class Letters:
    """
    The letters of one office.

    Changes take either `ids` or a `query`. To discard or purge by a query, give
    `expect`, the confirmed number of letters. `free_text` allows words without a field
    in a query.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page:
        """Return up to `limit` letters, newest death first; `after` continues a page."""
        return await self._connection.get(
            f"{API}/letters", Page, query=query, limit=limit, after=after
        )

    async def count(self, query: str = "") -> LetterCount:
        """Count the letters that a search finds, as far as that is cheap."""
        return await self._connection.get(f"{API}/letters/count", LetterCount, query=query)

    async def all(self, query: str = "", *, limit: int | None = None) -> AsyncIterator[LetterHead]:
        """Yield all letters that a search finds, newest death first, page by page."""
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
        Return one letter, by its id or the beginning of it; its secrets are masked.

        With `capture` the headers of a drained letter include `dlq-found`.
        """
        return await self._connection.get(_path(id), LetterView, capture=capture or None)

    async def timeline(self, id: str) -> Timeline:
        """Return the whole story of a letter."""
        return await self._connection.get(_path(id, "timeline"), Timeline)

    async def message(self, id: str) -> Message:
        """Return the complete message of a letter; recorded in the audit."""
        return await self._connection.get(_path(id, "message"), Message)

    async def original(self, id: str) -> Message:
        """Return the original message of a letter, before edits; recorded in the audit."""
        return await self._connection.get(_path(id, "original"), Message)

    async def repro(
        self, id: str, app: str | None = None, *, original: bool = False, reveal: bool = False
    ) -> dict[str, str]:
        """
        Return the files of a failing test of a letter, by name.

        Args:
            id: The id of the letter, or the beginning of it.
            app: The application as module:name (default: that of the server's settings).
            original: Use the message as it died, not as it was edited.
            reveal: Do not mask secrets. This is recorded in the audit.
        """
        path = _path(id, "repro", "revealed") if reveal else _path(id, "repro")
        params = {"app": app, "original": original or None}
        answer = await self._connection.send("GET", path, params=params, repeatable=True)
        return unpack_files(answer.content)

    async def edit(
        self, id: str, changes: Changes, *, revision: int, reason: str = ""
    ) -> LetterView:
        """Change the message of a letter; raises `Conflict` if it changed since `revision`."""
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

    async def act(
        self,
        verb: str,
        ids: Iterable[str] | None = None,
        *,
        expect: int | None = None,
        reason: str = "",
        unconfirmed: bool = False,
        **which: Unpack[Which],
    ) -> Moved:
        """
        Change letters, by `ids` or by what a `query` finds.

        Args:
            verb: What to do: the name of a route, such as `close`.
            ids: Whole ids of letters.
            expect: The confirmed number of letters; another number raises `Conflict`.
            reason: Why; recorded in the audit.
            unconfirmed: Include letters that wait for the outcome of a replay.
            which: A search instead of ids.
        """
        waiting = {"unconfirmed": True} if unconfirmed else {}
        chosen = selected(
            ids,
            which.get("query"),
            which.get("free_text", False),
            expect=expect,
            reason=reason,
            **waiting,
        )
        return await self._post(verb, chosen)

    async def review(
        self, ids: Iterable[str] | None = None, *, reason: str = "", **which: Unpack[Which]
    ) -> Moved:
        """Mark pending letters as reviewed."""
        return await self.act("review", ids, reason=reason, **which)

    async def close(
        self,
        ids: Iterable[str] | None = None,
        *,
        reason: str = "",
        unconfirmed: bool = False,
        **which: Unpack[Which],
    ) -> Moved:
        """Close letters; with `unconfirmed` also those that wait for an outcome."""
        return await self.act("close", ids, reason=reason, unconfirmed=unconfirmed, **which)

    async def reopen(
        self,
        ids: Iterable[str] | None = None,
        *,
        reason: str = "",
        unconfirmed: bool = False,
        **which: Unpack[Which],
    ) -> Moved:
        """Make letters pending again; `unconfirmed` as in `close`."""
        return await self.act("reopen", ids, reason=reason, unconfirmed=unconfirmed, **which)

    async def discard(
        self,
        ids: Iterable[str] | None = None,
        *,
        expect: int | None = None,
        reason: str = "",
        unconfirmed: bool = False,
        **which: Unpack[Which],
    ) -> Moved:
        """Discard letters, until they are restored or purged; `unconfirmed` as in `close`."""
        return await self.act(
            "discard", ids, expect=expect, reason=reason, unconfirmed=unconfirmed, **which
        )

    async def restore(
        self, ids: Iterable[str] | None = None, *, reason: str = "", **which: Unpack[Which]
    ) -> Moved:
        """Make discarded letters pending again."""
        return await self.act("restore", ids, reason=reason, **which)

    async def purge(
        self,
        ids: Iterable[str] | None = None,
        *,
        expect: int | None = None,
        reason: str,
        **which: Unpack[Which],
    ) -> Moved:
        """Delete letters permanently."""
        return await self.act("purge", ids, expect=expect, reason=reason, **which)

    async def note(
        self,
        text: str,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
    ) -> Moved:
        """Add a note to letters."""
        return await self._post("notes", selected(ids, query, free_text, text=text))

    async def _post(self, verb: str, chosen: dict[str, Any]) -> Moved:
        return await self._connection.post(f"{API}/letters/{verb}", chosen, Moved)


def _path(id: str, *more: str) -> str:
    return "/".join([f"{API}/letters", part(id), *more])


class RemoteLetters(LetterVerbs):
    """The letters of an office behind a server."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._letters = client.letters

    async def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page:
        """Return one page of letters, newest death first; `after` continues it."""
        heads: list[LetterHead] = []
        looked_at = 0
        until = time.monotonic() + SEARCH_PATIENCE.seconds
        while True:
            size = min(PAGE, limit - len(heads))
            page = await self._letters.search(query, limit=size, after=after)
            heads += page.heads
            looked_at += page.looked_at
            after = page.after
            is_enough = after is None or len(heads) >= limit
            if is_enough or looked_at >= SEARCH_PATIENCE.letters or time.monotonic() > until:
                total = None if is_enough else page.letters
                return Page(tuple(heads), after, looked_at, page.back_to, total)

    async def select(
        self, query: str, *, limit: int | None = None
    ) -> AsyncIterator[tuple[LetterHead, ...]]:
        """Iterate over all letters that a search finds, up to `limit`."""
        async for head in self._letters.all(query, limit=limit):
            yield (head,)

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        """Return the ids of the letters that a search finds now, up to `limit`."""
        text = query if isinstance(query, str) else show(query)
        return [head.id async for head in self._letters.all(text, limit=limit)]

    async def count(self, query: str = "") -> LetterCount:
        """Count the letters that a search finds, as far as that is cheap."""
        return await self._letters.count(query)

    async def head(self, text: str) -> LetterHead:
        """Return the list entry of one letter, by its id or the beginning of it."""
        return (await self._letters.get(text)).head

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""
        return (await self._client.stats()).sources

    async def details(
        self, text: str, by: By, *, reveal: bool = False, capture: bool = False
    ) -> LetterDetails:
        """Return one letter and its story; with `reveal` unmasked, which is recorded."""
        letters = self._letters
        view = await letters.get(text, capture=capture)
        message = original = None
        if reveal:
            message = await letters.message(view.head.id)
            shown = view_message(message, reveal=True, capture=capture)
            view = structs.replace(view, message=shown)
        if message is not None and view.original is not None:
            original = await letters.original(view.head.id)
            view = structs.replace(
                view,
                original=view_message(original, reveal=True, capture=capture),
                differences=differences(original, message, reveal=True),
            )
        story = await letters.timeline(view.head.id)
        return LetterDetails(
            view=view,
            moments=story.moments,
            left_out=story.left_out,
            message=message,
            original=original,
        )

    async def message(
        self, text: str, by: By, *, original: bool = False, shown: bool = True
    ) -> tuple[LetterHead, Message]:
        """Return the complete message of a letter; the server records it in the audit."""
        letters = self._letters
        head = (await letters.get(text)).head
        read = letters.original if original else letters.message
        return head, await read(head.id)

    async def repro(
        self, text: str, app: str, by: By, *, original: bool = False, reveal: bool = False
    ) -> dict[str, str]:
        """Return the files of a failing test of a letter, by name."""
        return await self._letters.repro(text, app, original=original, reveal=reveal)

    async def edit(
        self, text: str, changes: Changes, by: By, *, revision: int | None = None
    ) -> LetterHead:
        """Change the message of an open letter; the original is kept."""
        if revision is None:
            head = await self.head(text)
            text, revision = head.id, head.revision
        edited = await self._letters.edit(text, changes, revision=revision, reason=by.reason)
        return edited.head

    async def act(
        self, verb: Verb, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        """Do one of `VERBS` with letters; see `LetterVerbs`."""
        verb.check(by, unconfirmed=unconfirmed)

        async def act(some: Sequence[str]) -> Moved:
            letters = self._letters
            return await letters.act(verb.name, some, reason=by.reason, unconfirmed=unconfirmed)

        return await _in_batches(ids, act)

    async def note(self, ids: Iterable[str], text: str, by: By) -> Moved:
        """Add a note to letters."""
        return await _in_batches(ids, lambda some: self._letters.note(text, some))


async def _in_batches(
    ids: Iterable[str], act: Callable[[Sequence[str]], Awaitable[Moved]]
) -> Moved:
    asked = moved = 0
    skipped: Counter[str] = Counter()
    for some in batched(ids, _NAMED):
        part = await act(some)
        asked += part.asked
        moved += part.moved
        skipped.update(part.skipped)
    return Moved(asked=asked, moved=moved, skipped=dict(skipped))
