"""Search of the letters of an office: pages, counts, ids, and single letters."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from deadletter.core.errors import Conflict, NotFound, QueryError
from deadletter.core.letter import OPEN, DeadLetter, LetterHead, State
from deadletter.core.query import parse, resolve
from deadletter.core.query.ast import All, Node, Op, Term
from deadletter.core.query.fields import pattern, pieces
from deadletter.core.query.search_step import place
from deadletter.ports import Clock, LetterStore, Names, Naming, Page

from .batches import AT_ONCE, BATCH, PATIENCE, Patience, Turn
from .letters_protocol import LetterCount

SHORTEST_PREFIX: Final = 6
MANY: Final = 5_000  # ids asked for at once
MOST_COUNTED: Final = 10_000  # letters of a search that is counted
_COUNTING: Final = 1.0  # seconds
_ID: Final = re.compile(r"[a-z2-7]{6,24}")
_FULL: Final = 24


class LetterSearch:
    """The letters of one office, to search and to count."""

    def __init__(self, store: LetterStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def understand(self, query: str | Node) -> Node:
        """Parse a search and resolve its relative times against the clock."""
        node = parse(query) if isinstance(query, str) else query
        return resolve(node, self._clock.now())

    async def search(
        self,
        query: str | Node = "",
        *,
        limit: int = 50,
        after: str | None = None,
        sources: Sequence[str] = (),
        patience: Patience = PATIENCE,
        turn: Turn = AT_ONCE,
    ) -> Page:
        """
        Return up to `limit` letters, newest death first; `after` continues a page.

        A search that finds little stops when `patience` is used up. Its page is then
        short, still has an `after`, and says how far it has looked. With `sources`,
        only letters of these mailboxes are found.
        """
        node = of_sources(self.understand(query), sources)
        heads: list[LetterHead] = []
        looked_at, used = 0, 0.0
        while True:
            async with turn():
                began = self._clock.monotonic()
                page = await self._store.find(node, limit=limit - len(heads), after=after)
                used += self._clock.monotonic() - began
            heads += page.heads
            looked_at += page.looked_at
            after = page.after
            if after is None or len(heads) >= limit:
                return Page(tuple(heads), after, looked_at, page.back_to)
            if looked_at >= patience.letters or used >= patience.seconds:
                there = await self._number(sources)
                return Page(tuple(heads), after, looked_at, page.back_to, there)

    async def count(
        self, query: str | Node = "", *, sources: Sequence[str] = (), turn: Turn = AT_ONCE
    ) -> LetterCount:
        """
        Count the letters that a search finds, as far as that is cheap.

        Uses the counters of the office where they suffice. Otherwise it counts ids,
        up to `MOST_COUNTED` and for about a second.
        """
        node = self.understand(query)
        by_counters = counted_by(node, await self._store.counts(), sources)
        if by_counters is not None:
            return LetterCount(by_counters)
        node = of_sources(node, sources)
        found, after, used = 0, None, 0.0
        while True:
            size = min(MANY, MOST_COUNTED + 1 - found)
            async with turn():
                began = self._clock.monotonic()
                names = await self._named(node, size, after)
                used += self._clock.monotonic() - began
            found, after = found + len(names.ids), names.after
            if after is None and found <= MOST_COUNTED:
                return LetterCount(found)
            if found > MOST_COUNTED or used >= _COUNTING:
                return LetterCount(min(found, MOST_COUNTED), is_all=False)

    async def select(
        self, query: str | Node, *, limit: int | None = None
    ) -> AsyncIterator[tuple[LetterHead, ...]]:
        """Iterate over all letters that a search finds, up to `limit`, page by page."""
        node = self.understand(query)
        after: str | None = None
        left = limit
        while left is None or left > 0:
            size = BATCH if left is None else min(BATCH, left)
            page = await self._store.find(node, limit=size, after=after)
            if page.heads:
                yield page.heads
            if left is not None:
                left -= len(page.heads)
            after = page.after
            if after is None:
                return

    async def select_ids(
        self, query: str | Node, *, limit: int | None = None
    ) -> AsyncIterator[tuple[str, ...]]:
        """Iterate over the ids of all letters that a search finds, like `select`."""
        node = self.understand(query)
        after: str | None = None
        left = limit
        while left is None or left > 0:
            names = await self._named(node, MANY if left is None else min(MANY, left), after)
            if names.ids:
                yield names.ids
            if left is not None:
                left -= len(names.ids)
            after = names.after
            if after is None:
                return

    async def freeze(
        self,
        query: str | Node,
        *,
        limit: int | None = None,
        sources: Sequence[str] = (),
        patience: float | None = None,
        turn: Turn = AT_ONCE,
    ) -> list[str]:
        """
        Return the ids of the letters that a search finds now.

        Raises `QueryError` if finding all of them takes more than `patience` seconds.
        """
        node = of_sources(self.understand(query), sources)
        ids: list[str] = []
        after: str | None = None
        used = 0.0
        while limit is None or len(ids) < limit:
            size = MANY if limit is None else min(MANY, limit - len(ids))
            async with turn():
                began = self._clock.monotonic()
                names = await self._named(node, size, after)
                used += self._clock.monotonic() - began
            ids += names.ids
            after = names.after
            if after is None:
                break
            if patience is not None and used >= patience:
                raise too_costly(patience, place(after)[0])
        return ids

    async def _named(self, node: Node, limit: int, after: str | None) -> Names:
        if isinstance(self._store, Naming):
            return await self._store.find_ids(node, limit=limit, after=after)
        page = await self._store.find(node, limit=min(limit, BATCH), after=after)
        return Names(tuple(head.id for head in page.heads), page.after)

    async def _number(self, sources: Sequence[str]) -> int:
        counts = await self._store.counts()
        return sum(
            sum(states.values())
            for source, states in counts.items()
            if not sources or source in sources
        )

    async def get(self, text: str, *, sources: Sequence[str] = ()) -> DeadLetter:
        """
        Return one whole letter, by its id or the beginning of it.

        Raises `NotFound` if there is none, and `Conflict` with their ids if several
        match. With `sources`, letters of other mailboxes are treated as missing.
        """
        name = text.strip().lower()
        if not sources:
            found = await self._store.get([name])
            if found:
                return found[0]
        if not _ID.fullmatch(name):
            raise NotFound(_not_an_id(text))
        whole = len(name) == _FULL
        if whole and not sources:
            raise NotFound(_no_letter(name))
        named = Term("id", Op.IS, (name if whole else f"{name}*",))
        page = await self.search(named, limit=3, sources=sources)
        if not page.heads and whole:
            raise NotFound(_no_letter(name))
        if not page.heads:
            raise NotFound(f"there is no letter whose id begins with {name}")
        if len(page.heads) > 1:
            some = ", ".join(head.id for head in page.heads)
            raise Conflict(f"several letters begin with {name}: {some}; give more of the id")
        (head,) = page.heads
        found = await self._store.get([head.id])
        if not found:  # purged since
            raise NotFound(_no_letter(head.id))
        return found[0]

    async def head(self, text: str) -> LetterHead:
        """Return the list entry of one letter, by its id or the beginning of it."""
        return (await self.get(text)).head

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""
        return await self._store.counts()


def of_sources(node: Node, sources: Sequence[str]) -> Node:
    """Limit a search to letters of these mailboxes; no `sources` means no limit."""
    if not sources:
        return node
    names = tuple(pattern((source,)) for source in sources)
    return All((node, Term("source", Op.IS, names)))


_COUNTED: Final = frozenset(State) | {"open"}  # values of `is:` that counts by state answer


def counted_by(
    node: Node, counts: Mapping[str, Mapping[State, int]], sources: Sequence[str]
) -> int | None:
    """Return how many letters a search finds, if counts by state and source suffice."""
    terms = node.terms if isinstance(node, All) else (node,)
    states, names = frozenset(State), frozenset(sources or counts)
    for term in terms:
        match term:
            case Term("is", Op.IS, values) if _COUNTED.issuperset(values):
                named = {State(value) for value in values if value != "open"}
                states &= named | (OPEN if "open" in values else frozenset())
            case Term("source", Op.IS, values):
                found = [pieces(value) for value in values]
                if any(len(parts) > 1 for parts in found):
                    return None
                names &= {parts[0] for parts in found}
            case _:
                return None
    return sum(
        n for source in names for state, n in counts.get(source, {}).items() if state in states
    )


def too_costly(seconds: float, back_to: datetime) -> QueryError:
    """Return the error for a search that is too slow to select letters."""
    return QueryError(
        f"this search is too costly to choose letters by: in {seconds:.0f} seconds it"
        f" looked no further back than {back_to:%Y-%m-%d %H:%M:%S} UTC; put an indexed"
        " field beside it, such as source:, error:, group: or since:"
    )


def _no_letter(name: str) -> str:
    return f"there is no letter {name}; `dlq list` shows what there is"


def _not_an_id(text: str) -> str:
    if len(text) < SHORTEST_PREFIX:
        return f"{text!r} is too short for an id: give {SHORTEST_PREFIX} characters"
    return f"{text[:40]!r} is not the id of a letter; `dlq list` shows them"
