"""The searches of one request: within its caller's share, while the client waits."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from litestar import Request
from litestar.di import NamedDependency, Provide
from litestar.params import PathParameter, QueryParameter

from deadletter.core.access import Identity
from deadletter.core.query import Node, is_costly, parse
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.batches import AT_ONCE, Patience, Turn
from deadletter.office.letters import LetterCount
from deadletter.ports import Page
from deadletter.server.auth.guards import caller

from .context import Here, ServerContext
from .problems import AnswerInstead

T = TypeVar("T")

CHOOSING: Final = 30.0  # seconds of searching to choose letters by
_GONE: Final = 499  # as proxies log it: nobody is there to read the answer


class Searching:
    """
    Searches for one request.

    A search ends with its client, in the store too. A costly one counts against the
    caller's share, and takes turns with other costly ones.
    """

    def __init__(
        self, context: ServerContext, request: Request[Any, Any, Any], who: Identity
    ) -> None:
        self._letters = context.office.letters
        self._shares = context.searches
        self._patience = Patience(seconds=context.settings.serve.search_seconds)
        self._request = request
        self._who = who

    async def search(self, query: Node, *, limit: int, after: str | None) -> Page:
        """Up to `limit` letters of the caller's mailboxes, newest death first."""

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
        """The ids a search finds now, in whatever mailboxes it names."""
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
        """Do something that costs as much as a costly search."""
        caller = self._who.principal or self._who.name
        try:
            async with self._shares.searching(caller) as turn, turn():
                return await self._while_waited_for(work)
        finally:
            work.close()

    async def _shared(self, query: Node, work: Callable[[Turn], Coroutine[Any, Any, T]]) -> T:
        if not is_costly(query):
            return await work(AT_ONCE)
        caller = self._who.principal or self._who.name
        async with self._shares.searching(caller) as turn:
            return await self._while_waited_for(work(turn))

    async def _while_waited_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it; if the client goes away, it is cancelled."""
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
        # Whatever else comes is the end of a request that was read already.
        while (await self._request.receive())["type"] != "http.disconnect":
            pass


async def _searching(request: Request[Any, Any, Any], context: Here) -> Searching:
    return Searching(context, request, (await caller(request)).who)


Searches: TypeAlias = NamedDependency[Searching]  # as `searching`

dependencies: Final = {"searching": Provide(_searching)}
"""For the app: what routes may ask for by name."""


MOST: Final = 500  # on one page

Query: TypeAlias = Annotated[
    str,
    QueryParameter(
        name="query",
        max_length=MAX_TEXT,
        description="A search such as `is:pending source:orders`; empty is everything.",
    ),
]
Limit: TypeAlias = Annotated[int, QueryParameter(ge=1, le=MOST, description="How many at most.")]
After: TypeAlias = Annotated[
    str | None,
    QueryParameter(max_length=200, description="`after` of the page before: what comes behind it."),
]
Id: TypeAlias = Annotated[
    str, PathParameter(max_length=200, description="The letter's id, or the beginning of it.")
]
