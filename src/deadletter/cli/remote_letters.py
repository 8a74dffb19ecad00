"""The letters of an office behind a server."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from time import monotonic
from typing import Final

from deadletter.client import Client
from deadletter.client.letters import PAGE
from deadletter.core.letter import By, LetterHead, State
from deadletter.core.query import show
from deadletter.core.query.ast import Node
from deadletter.office.batches import batched
from deadletter.office.letters import LetterCount, Moved
from deadletter.office.patience import PATIENCE
from deadletter.ports import Page

_NAMED: Final = 5_000  # letters in one request


class RemoteLetters:
    """Letters found, moved along and put away through a server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._letters = client.letters

    async def search(
        self, query: str = "", *, limit: int = 50, after: str | None = None
    ) -> Page:
        heads: list[LetterHead] = []
        looked_at = 0
        until = monotonic() + PATIENCE.seconds
        while True:
            size = min(PAGE, limit - len(heads))
            page = await self._letters.search(query, limit=size, after=after)
            heads += page.heads
            looked_at += page.looked_at
            after = page.after
            is_enough = after is None or len(heads) >= limit
            if is_enough or looked_at >= PATIENCE.letters or monotonic() > until:
                there = None if is_enough else page.letters
                return Page(tuple(heads), after, looked_at, page.back_to, there)

    async def select(
        self, query: str, *, limit: int | None = None
    ) -> AsyncIterator[tuple[LetterHead, ...]]:
        async for head in self._letters.all(query, limit=limit):
            yield (head,)

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        text = query if isinstance(query, str) else show(query)
        return [head.id async for head in self._letters.all(text, limit=limit)]

    async def count(self, query: str = "") -> LetterCount:
        return await self._letters.count(query)

    async def head(self, text: str) -> LetterHead:
        return (await self._letters.get(text)).head

    async def counts(self) -> dict[str, dict[State, int]]:
        return (await self._client.stats()).sources

    async def review(self, ids: Iterable[str], by: By) -> Moved:
        return await _all(
            ids, lambda some: self._letters.review(some, reason=by.reason)
        )

    async def close(
        self, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        return await _all(
            ids,
            lambda some: self._letters.close(
                some, reason=by.reason, unconfirmed=unconfirmed
            ),
        )

    async def reopen(
        self, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        return await _all(
            ids,
            lambda some: self._letters.reopen(
                some, reason=by.reason, unconfirmed=unconfirmed
            ),
        )

    async def discard(
        self, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        return await _all(
            ids,
            lambda some: self._letters.discard(
                some, reason=by.reason, unconfirmed=unconfirmed
            ),
        )

    async def restore(self, ids: Iterable[str], by: By) -> Moved:
        return await _all(
            ids, lambda some: self._letters.restore(some, reason=by.reason)
        )

    async def note(self, ids: Iterable[str], text: str, by: By) -> Moved:
        return await _all(ids, lambda some: self._letters.note(text, some))

    async def purge(self, ids: Iterable[str], by: By) -> Moved:
        return await _all(ids, lambda some: self._letters.purge(some, reason=by.reason))


async def _all(
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
