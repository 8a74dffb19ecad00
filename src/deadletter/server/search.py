"""Searches of one request: limited by the share of the caller, cancelled with the client."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from litestar import Request
from litestar.di import NamedDependency, Provide
from litestar.params import PathParameter, QueryParameter

from deadletter.core.access import Identity
from deadletter.core.query import Node, is_costly, parse
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.batches import AT_ONCE, Patience, Turn
from deadletter.office.letters_protocol import LetterCount
from deadletter.ports import Page
from deadletter.server.auth.guards import caller

from .context import Here, ServerContext
from .problems import AnswerInstead

T = TypeVar("T")

CHOOSING: Final = 30.0  # seconds of searching to choose letters for a change
_GONE: Final = 499  # the client closed the connection, as proxies log it


class Searching:
    """
    The searches of one request.

    A search is cancelled when its client disconnects, in the store too. A costly search
    counts against the share of the caller, and takes turns with other costly ones.
    """

    def __init__(
        self, context: ServerContext, request: Request[Any, Any, Any], who: Identity
    ) -> None:
        self._letters = context.office.letters
        self._shares = context.searches
        self._patience = Patience(seconds=context.settings.serve.search_seconds)
        self._request = request
        self._who = who

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the mailboxes that the caller is limited to; none means all."""
        return self._who.sources

    async def search(self, query: Node, *, limit: int, after: str | None) -> Page:
        """Return up to `limit` letters of the caller's mailboxes, newest death first."""

        def searching(turn: Turn) -> Coroutine[Any, Any, Page]:
            return self._letters.search(
                query,
                limit=limit,
                after=after,
                sources=self._who.sources,
                patience=self._patience,
                turn=turn,
            )

        return await self._shared(query, searching)

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        """Return the ids of the letters that a search finds now, in all mailboxes."""
        node = parse(query) if isinstance(query, str) else query

        def choosing(turn: Turn) -> Coroutine[Any, Any, list[str]]:
            return self._letters.freeze(node, limit=limit, patience=CHOOSING, turn=turn)

        return await self._shared(node, choosing)

    async def count(self, query: Node) -> LetterCount:
        """Return the number of letters of the caller's mailboxes that a search finds."""

        def counting(turn: Turn) -> Coroutine[Any, Any, LetterCount]:
            return self._letters.count(query, sources=self._who.sources, turn=turn)

        return await self._shared(query, counting)

    async def look(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that costs as much as a costly search."""
        caller = self._who.principal or self._who.name
        try:
            async with self._shares.searching(caller) as turn, turn():
                return await self._while_connected(work)
        finally:
            work.close()

    async def _shared(self, query: Node, work: Callable[[Turn], Coroutine[Any, Any, T]]) -> T:
        if not is_costly(query):
            return await work(AT_ONCE)
        caller = self._who.principal or self._who.name
        async with self._shares.searching(caller) as turn:
            return await self._while_connected(work(turn))

    async def _while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work; cancel it if the client disconnects."""
        doing = asyncio.create_task(work)
        leaving = asyncio.create_task(self._until_gone())
        try:
            await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return await doing
            raise AnswerInstead(_GONE, "client-gone", "the client did not wait for the answer")
        finally:
            for task in (doing, leaving):
                task.cancel()
            await asyncio.wait({doing, leaving})

    async def _until_gone(self) -> None:
        # Other messages belong to the request body, which was read already.
        while (await self._request.receive())["type"] != "http.disconnect":
            pass


async def _searching(request: Request[Any, Any, Any], context: Here) -> Searching:
    return Searching(context, request, (await caller(request)).who)


Searches: TypeAlias = NamedDependency[Searching]  # as `searching`

dependencies: Final = {"searching": Provide(_searching)}
"""Dependencies that routes can name as parameters."""


MOST: Final = 500  # letters on one page

Query: TypeAlias = Annotated[
    str,
    QueryParameter(
        name="query",
        max_length=MAX_TEXT,
        description="A search such as `is:pending source:orders` (default: all letters).",
    ),
]
Limit: TypeAlias = Annotated[
    int, QueryParameter(ge=1, le=MOST, description="The maximum number of entries.")
]
After: TypeAlias = Annotated[
    str | None,
    QueryParameter(max_length=200, description="`after` of the previous page, to continue it."),
]
Since: TypeAlias = Annotated[
    datetime | None, QueryParameter(description="Only what happened since this time.")
]
Id: TypeAlias = Annotated[
    str, PathParameter(max_length=200, description="The letter's id, or the beginning of it.")
]


def in_utc(time: datetime | None) -> datetime | None:
    """Return a time of a request, which is in UTC unless it says otherwise."""
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
