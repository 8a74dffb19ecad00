"""Letters of an office: search, read, edit and move them."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from msgspec import Struct

from deadletter.core.errors import ConfigError, Conflict, NotFound, QueryError
from deadletter.core.letter import OPEN, By, Changes, DeadLetter, LetterHead, State, sources_of
from deadletter.core.message import Message
from deadletter.core.query import parse, resolve
from deadletter.core.query.ast import All, Node, Op, Term
from deadletter.core.query.fields import pattern, pieces
from deadletter.core.query.search_step import place
from deadletter.ports import Clock, LetterStore, Move, Names, Naming, Page

from .batches import AT_ONCE, BATCH, PATIENCE, Patience, Turn, batched
from .view import LetterView, Moment, tell, view
from .view import reveal as record_reveal

SHORTEST_PREFIX: Final = 6
LONGEST_NOTE: Final = 4_000
MANY: Final = 5_000  # ids asked for at once
MOST_COUNTED: Final = 10_000  # letters of a search that is counted
_COUNTING: Final = 1.0  # seconds
_ID: Final = re.compile(r"[a-z2-7]{6,24}")
_FULL: Final = 24

IS_REPLAYING: Final = f"is {State.REPLAYING}"  # why a letter was left alone
REVIEWABLE: Final = frozenset({State.PENDING})
CLOSABLE: Final = frozenset({State.PENDING, State.REVIEWED, State.QUARANTINED, State.REPLAYED})
REOPENABLE: Final = frozenset({State.REVIEWED, State.CLOSED, State.REPLAYED, State.QUARANTINED})
DISCARDABLE: Final = frozenset({State.PENDING, State.REVIEWED, State.QUARANTINED})


class Moved(Struct, frozen=True, kw_only=True):
    """The result of a change to several letters."""

    asked: int = 0
    moved: int = 0
    skipped: dict[str, int] = {}  # the number of letters left unchanged, by reason


class LetterCount(Struct, frozen=True):
    """The number of letters that a search finds; a lower bound unless `is_all`."""

    letters: int
    is_all: bool = True


class LetterDetails(Struct, frozen=True, kw_only=True):
    """One letter for a person: its masked view, its story, and on request its messages."""

    view: LetterView
    moments: tuple[Moment, ...]
    left_out: bool = False  # the story has more acts than `moments` holds
    message: Message | None = None  # only if revealed
    original: Message | None = None  # only if revealed, and the letter was edited


class LettersProtocol(Protocol):
    """
    The letters of an office: `Letters` here, or the same over HTTP.

    Methods that change letters take their ids, record `by` in the audit and return how
    many letters changed, and why the others did not.
    """

    async def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page:
        """
        Return one page of letters, newest death first.

        Args:
            query: A search such as `is:pending source:orders`; empty means all letters.
            limit: The most letters on the page.
            after: The `after` of the previous page, to continue it.
        """

    def select(
        self, query: str, *, limit: int | None = None
    ) -> AsyncIterator[tuple[LetterHead, ...]]:
        """Iterate over all letters that a search finds, up to `limit`, page by page."""

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        """Return the ids of the letters that a search finds now, up to `limit`."""

    async def count(self, query: str = "") -> LetterCount:
        """Count the letters that a search finds, as far as that is cheap."""

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""

    async def head(self, text: str) -> LetterHead:
        """Return the list entry of one letter, by its id or the beginning of it."""

    async def details(
        self, text: str, by: By, *, reveal: bool = False, capture: bool = False
    ) -> LetterDetails:
        """
        Return one letter and its story; secrets are masked.

        Args:
            text: The id of the letter, or the beginning of it.
            by: Who looks at it.
            reveal: Show what is masked. This is recorded in the audit.
            capture: Include the header `dlq-found` of drained letters.
        """

    async def message(
        self, text: str, by: By, *, original: bool = False, shown: bool = True
    ) -> tuple[LetterHead, Message]:
        """
        Return the complete message of a letter; this is recorded in the audit.

        Args:
            text: The id of the letter, or the beginning of it.
            by: Who reads it.
            original: Return the message as it died, not as it was edited.
            shown: False if no person sees it. A server records every request anyway.
        """

    async def edit(
        self, text: str, changes: Changes, by: By, *, revision: int | None = None
    ) -> LetterHead:
        """
        Change the message of an open letter; the original is kept.

        Args:
            text: The id of the letter, or the beginning of it.
            changes: The new values; everything else stays.
            by: Who changes it, and why.
            revision: Raise `Conflict` if the letter is no longer at this revision.
        """

    async def review(self, ids: Iterable[str], by: By) -> Moved:
        """Mark pending letters as reviewed."""

    async def close(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Close letters; with `unconfirmed` also those that wait for a replay's outcome."""

    async def reopen(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Make letters pending again; `unconfirmed` as in `close`."""

    async def discard(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Discard letters, until `restore` or `purge`; `unconfirmed` as in `close`."""

    async def restore(self, ids: Iterable[str], by: By) -> Moved:
        """Make discarded letters pending again."""

    async def note(self, ids: Iterable[str], text: str, by: By) -> Moved:
        """Add a note to letters."""

    async def purge(self, ids: Iterable[str], by: By) -> Moved:
        """Delete letters permanently. Requires a reason in `by`."""


class Letters:
    """
    The letters of one office.

    Every change is compare-and-set, is recorded in the audit with actor and reason, and returns
    how many letters it did not change for what reason.
    """

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

    async def details(
        self,
        text: str,
        by: By,
        *,
        reveal: bool = False,
        capture: bool = False,
        sources: Sequence[str] = (),
    ) -> LetterDetails:
        """Return one letter and its story; with `reveal` unmasked, which is recorded."""
        letter = await self.get(text, sources=sources)
        if reveal:
            await record_reveal(self._store, letter, by)
        story = await tell(self._store, letter)
        return LetterDetails(
            view=view(letter, reveal=reveal, capture=capture),
            moments=story.moments,
            left_out=story.left_out,
            message=letter.message if reveal else None,
            original=letter.original if reveal else None,
        )

    async def message(
        self,
        text: str,
        by: By,
        *,
        original: bool = False,
        shown: bool = True,
        sources: Sequence[str] = (),
    ) -> tuple[LetterHead, Message]:
        """Return the complete message of a letter; recorded in the audit if `shown`."""
        letter = await self.get(text, sources=sources)
        if shown:
            await record_reveal(self._store, letter, by)
        return letter.head, letter.as_it_died if original else letter.message

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""
        return await self._store.counts()

    async def review(self, ids: Iterable[str], by: By) -> Moved:
        """Mark pending letters as reviewed."""
        return await self._move(ids, REVIEWABLE, State.REVIEWED, by)

    async def close(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Close letters; `unconfirmed` as in `reopen`."""
        return await self._move(ids, CLOSABLE, State.CLOSED, by, unconfirmed=unconfirmed)

    async def reopen(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """
        Make letters pending again.

        A letter that waits for the outcome of its replay is reopened only with
        `unconfirmed`, because its copy may still be handled. The replay then stops
        waiting for that copy, but still records its outcome.
        """
        return await self._move(ids, REOPENABLE, State.PENDING, by, unconfirmed=unconfirmed)

    async def discard(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """
        Discard letters; they can be restored until they are purged.

        `unconfirmed` as in `reopen`.
        """
        return await self._move(ids, DISCARDABLE, State.DISCARDED, by, unconfirmed=unconfirmed)

    async def restore(self, ids: Iterable[str], by: By) -> Moved:
        """Make discarded letters pending again."""
        return await self._move(ids, frozenset({State.DISCARDED}), State.PENDING, by)

    async def note(self, ids: Iterable[str], text: str, by: By) -> Moved:
        """Add a note to letters."""
        text = text.strip()
        if not text:
            raise ConfigError("the note is empty: write a text")
        if len(text) > LONGEST_NOTE:
            raise ConfigError(
                f"the note has {len(text):,} characters, at most {LONGEST_NOTE:,} are allowed"
            )
        result = Moved()
        for batch in batched(ids):
            noted = await self._store.note(batch, text, by)
            result = _and(result, batch, noted, Counter())
        return result

    async def edit(
        self,
        text: str,
        changes: Changes,
        by: By,
        *,
        revision: int | None = None,
        sources: Sequence[str] = (),
    ) -> LetterHead:
        """
        Change the message of one letter and return its new list entry.

        The letter keeps the message that died as its `original`. With a `revision`,
        raises `Conflict` if somebody has changed the letter since. A replay sends the
        edited message under the original id.
        """
        letter = await self.get(text, sources=sources)
        await self._store.edit(
            letter.id,
            changes.made_to(letter.message),
            revision=letter.head.revision if revision is None else revision,
            by=by,
        )
        return await self.head(letter.id)

    async def purge(self, ids: Iterable[str], by: By) -> Moved:
        """
        Delete letters permanently. The audit keeps the fact, not the content.

        Letters that wait for the outcome of a replay are not deleted.
        """
        if not by.reason.strip():
            raise ConfigError("purge deletes permanently and requires a reason")
        result = Moved()
        for batch in batched(ids):
            heads = await self._heads(batch)
            free = [head.id for head in heads if head.state is not State.REPLAYING]
            gone = await self._store.purge(free, by)
            why_not = Counter({IS_REPLAYING: len(heads) - len(free)})
            result = _and(result, batch, gone, +why_not)
        return result

    async def _move(
        self,
        ids: Iterable[str],
        old: frozenset[State],
        new: State,
        by: By,
        *,
        unconfirmed: bool = False,
    ) -> Moved:
        result = Moved()
        if unconfirmed:
            old |= {State.REPLAYING}
        old &= sources_of(new, self._store.review_order)
        for batch in batched(ids):
            moved = await self._store.move(Move(ids=batch, old=old, new=new), by)
            result = _and(result, batch, moved, await self._why_not(batch, moved))
        return result

    async def _why_not(self, asked: Sequence[str], done: Sequence[str]) -> Counter[str]:
        left = set(asked).difference(done)
        if not left:
            return Counter()
        return Counter(f"is {head.state}" for head in await self._heads(tuple(left)))

    async def _heads(self, ids: Sequence[str]) -> Sequence[LetterHead]:
        named = Term("id", Op.IS, tuple(ids))
        return (await self.search(named, limit=len(ids))).heads


def _and(sofar: Moved, asked: Sequence[str], done: Sequence[str], why_not: Counter[str]) -> Moved:
    missing = len(set(asked)) - len(done) - why_not.total()
    if missing > 0:
        why_not["no longer there"] += missing
    return Moved(
        asked=sofar.asked + len(asked),
        moved=sofar.moved + len(done),
        skipped=dict(Counter(sofar.skipped) + why_not),
    )


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
