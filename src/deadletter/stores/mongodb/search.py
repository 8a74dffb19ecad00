"""
Search, newest death first, at a bounded cost.

The server narrows down by what letters say of themselves, and `core.query` judges
what that finds: heads alone where they are enough, contents where it must.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct
from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.errors import ConfigError
from deadletter.core.query import All, Like, Meter, Node, is_costly, needs_contents, split
from deadletter.core.query.filters import MOST_SORTED, Lead, filter_of, leads_of
from deadletter.core.query.search_step import (
    Bottom,
    Contents,
    Heads,
    Sizes,
    Wanted,
    cursor,
    search_step,
)
from deadletter.core.query.search_step import place as cursor_place
from deadletter.core.text import stored
from deadletter.ports.letters import Names, Page, run_step

from .letters_documents import HEAD, OPENED, number, opened, place, placed, unopened
from .schema import Collections, Document

_FIELDS: Final = {"id": "_id", "dead_at": "place", "first_failed_at": "first_failed"}
_MOST: Final = 1 << 62
_LONGEST: Final = 5_000  # signs of a pattern the server is given to match
_FIRST: Final = place(datetime.min.replace(tzinfo=UTC))
_LAST: Final = b"\xff" * len(_FIRST)


class MongodbFilters:
    """
    Filters as documents.

    No value ever becomes an operator, and patterns are quoted sign by sign.
    """

    def __init__(self) -> None:
        self.everything: Document = {}
        self.nothing: Document = {"_id": {"$in": []}}

    def negated(self, part: Document) -> Document:
        """Return the opposite of a filter."""
        return {"$nor": [part]}

    def all_of(self, parts: Sequence[Document]) -> Document:
        """Join filters by AND."""
        return {"$and": parts}

    def any_of(self, parts: Sequence[Document]) -> Document:
        """Join filters by OR."""
        return {"$or": parts}

    def one_of(self, attribute: str, values: Collection[str]) -> Document:
        """Compare a field with values."""
        return {field_of(attribute): {"$in": sorted(map(stored, values))}}

    def like(self, like: Like, *, sure: bool) -> Document:
        """Compare a field with a pattern; escaped text is doubtful."""
        pattern = _pattern(like.pieces, folded=like.folded)
        if len(pattern) > _LONGEST:
            return self.nothing if sure else self.everything
        test: Document = {field_of(like.attribute): {"$regex": pattern, "$options": "s"}}
        # An escape sign by sign fits whatever the sign itself fits, and maybe more.
        return {"$and": [test, {"odd": False}]} if sure else test

    def between(
        self, attribute: str, low: int | datetime | None, high: int | datetime | None
    ) -> Document:
        """Compare a field with a range."""
        field, ends = field_of(attribute), {"$gte": low, "$lt": high}
        given = {op: _bound(field, end) for op, end in ends.items() if end is not None}
        return {field: given} if given else self.everything

    def present(self, attribute: str) -> Document:
        """Require a value that is not empty."""
        return {field_of(attribute): {"$gt": ""}}

    def flagged(self, attribute: str) -> Document:
        """Require a flag."""
        return {field_of(attribute): True}


class MongodbIndexes:
    """
    Leads as ranges of named indexes.

    The index is named to the server: what it would rather take might be without bounds.
    """

    every_letter: Lead[Document] = Lead("by_place", ({},))
    indexed = frozenset(
        {"id", "state", "source", "fingerprint", "error_name", "message_id"}
        | {"key", "business_key", "trace_id"}
    )

    def by_values(self, attribute: str, values: Sequence[str]) -> Lead[Document]:
        """Return the letters of a few values."""
        if attribute == "id":
            return self.by_ids(values)
        found = sorted(set(map(stored, values)))
        return Lead(f"by_{attribute}", ({attribute: {"$in": found}},))

    def by_prefix(self, attribute: str, prefix: str) -> Lead[Document] | None:
        """Return the letters whose value begins like this; None for odd endings."""
        if not prefix[-1].isalnum():
            return None
        low, high = stored(prefix), stored(prefix[:-1]) + chr(ord(prefix[-1]) + 1)
        index = "_id_" if attribute == "id" else f"by_{attribute}"
        match: Document = {field_of(attribute): {"$gte": low, "$lt": high}}
        return Lead(index, (match,), in_order=False)

    def by_ids(self, ids: Collection[str]) -> Lead[Document]:
        """Return the letters of many ids."""
        match: Document = {"_id": {"$in": sorted(map(stored, ids))}}
        return Lead("_id_", (match,), in_order=False)


_FILTERS: Final = MongodbFilters()
_LEADS: Final = MongodbIndexes()


def filtered(node: Node, now: datetime, *, sure: bool = False) -> Document:
    """Return a search as a filter of heads; see `core.query.filters`."""
    return filter_of(node, now, _FILTERS, sure=sure)


def field_of(attribute: str) -> str:
    """Return the name of a head's attribute in documents."""
    return _FIELDS.get(attribute, attribute)


def literally(text: str) -> str:
    """The regular expression that matches this text and no other."""
    return "".join(map(_sign, stored(text)))


def contained(text: str) -> str:
    """The regular expression that finds this text, in upper or lower case."""
    return "".join(map(_either_case, stored(text)))


def _bound(field: str, end: int | datetime) -> int | bytes:
    if isinstance(end, datetime):
        return place(end) if field == "place" else number(end)
    return min(max(end, -_MOST), _MOST)


def _pattern(pieces: tuple[str, ...], *, folded: bool) -> str:
    """
    The same as `core.query.fits`: the leftmost place for each piece.

    What has been found is not given up again (`?>`), so it takes one pass.
    """
    sign = _either_case if folded else _sign
    first, *rest = ["".join(map(sign, stored(piece))) for piece in pieces]
    if not rest:
        return rf"\A{first}\z"
    *middle, last = rest
    found = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return rf"\A{first}{found}" + (rf".*{last}\z" if last else "")


def _sign(sign: str) -> str:
    # ASCII alone has signs that mean something; letters and digits do not.
    return f"\\{sign}" if sign.isascii() and not sign.isalnum() else sign


def _either_case(sign: str) -> str:
    if sign.isascii() and sign.isalpha():
        return f"[{sign.lower()}{sign.upper()}]"
    return _sign(sign)


class Window(Struct, frozen=True, kw_only=True):
    """A stretch of an index, within places from `low` to before `high`."""

    index: str
    match: Document
    low: bytes = _FIRST
    high: bytes = _LAST
    in_order: bool = True  # False: it takes sorting all of it to get the newest
    exact: bool = False  # it holds what was asked for and nothing else

    def letters(self, *, start: bytes | None, end: bytes | None = None) -> Document:
        """Return the filter for letters after `start`, up to and including `end`."""
        high = self.high if start is None else min(self.high, start)
        low = self.low if end is None else max(self.low, end)
        return {**self.match, "place": {"$gte": low, "$lt": high}}


def windows(conjuncts: Iterable[Node], now: datetime) -> list[Window]:
    """Return windows that each hold whatever fulfils all of these."""
    found = leads_of(conjuncts, now, _LEADS)
    return [
        Window(
            index=lead.index,
            match=lead.arms[0],
            in_order=lead.in_order,
            low=_FIRST if found.low is None else place(found.low),
            high=_LAST if found.high is None else place(found.high),
            exact=found.is_exact,
        )
        for lead in found.leads
    ]


async def narrowest(
    there: Collections,
    session: AsyncClientSession,
    candidates: Sequence[Window],
    *,
    start: bytes | None,
    most: int,
) -> Window:
    """The window with the fewest letters; none is counted far beyond `most`."""
    if len(candidates) == 1:
        return candidates[0]
    sizes = [
        (await size(there, session, window, start=start, most=most + 1), window)
        for window in candidates
    ]
    fitting = [(n, one) for n, one in sizes if one.in_order or n <= MOST_SORTED]
    return min(fitting, key=lambda found: found[0])[1]


async def size(
    there: Collections,
    session: AsyncClientSession,
    window: Window,
    *,
    start: bytes | None,
    end: bytes | None = None,
    most: int,
) -> int:
    """Return the number of letters in a window, counted up to `most`."""
    return await there.letters.count_documents(
        window.letters(start=start, end=end), hint=window.index, limit=most, session=session
    )


async def bottom(
    there: Collections,
    session: AsyncClientSession,
    window: Window,
    *,
    start: bytes | None,
    depth: int,
) -> bytes | None:
    """The place of the `depth`-th letter of a window; None when it has fewer."""
    asked = window.letters(start=start)
    found = there.letters.find(asked, {"place": 1, "_id": 0}, session=session)
    found = found.hint(window.index).sort("place", -1).skip(depth - 1).limit(1)
    async for one in found:
        return bytes(one["place"])
    return None


_SEARCH_LONGEST: Final = 5_000  # milliseconds the server may take for one answer
_SIZE: Final = {"place": 1, "size": {"$add": [{"$binarySize": "$body"}, {"$binarySize": "$rest"}]}}


class Asked(Struct, frozen=True):
    """A search for a page."""

    query: Node
    limit: int
    after: str | None
    now: datetime
    meter: Meter

    @property
    def start(self) -> bytes | None:
        """The place to go on from."""
        if self.limit < 1:
            raise ConfigError(f"a page of {self.limit} letters: ask for at least one")
        return None if self.after is None else place(*cursor_place(self.after))


class Reading(Struct, frozen=True):
    """One step of a search: a range of an index, and the condition on its letters."""

    there: Collections
    session: AsyncClientSession
    window: Window
    narrow: Document

    async def read(self, wanted: Wanted[bytes]) -> Any:
        """Read what the search step asks for."""
        match wanted:
            case Bottom(after, depth):
                return await bottom(self.there, self.session, self.window, start=after, depth=depth)
            case Heads(after, end, most):
                found = await self._documents(HEAD, after, end, most)
                return [(one["place"], unopened(one)) for one in found]
            case Sizes(after, end, most):
                found = await self._documents(_SIZE, after, end, most)
                return [(one["place"], one["size"]) for one in found]
            case Contents(places):
                found = await self.there.letters.find(
                    {"place": {"$in": list(places)}},
                    OPENED,
                    session=self.session,
                    max_time_ms=_SEARCH_LONGEST,
                ).to_list()
                return [(one["place"], opened(one)) for one in found]

    async def _documents(
        self, columns: Document, after: bytes | None, end: bytes | None, most: int
    ) -> list[Document]:
        stretch = self.window.letters(start=after, end=end)
        found = self.there.letters.find(
            {"$and": [stretch, self.narrow]},
            columns,
            session=self.session,
            hint=self.window.index,
            limit=most,
            max_time_ms=_SEARCH_LONGEST,
            allow_disk_use=True,
        )
        return await found.sort("place", -1).to_list()


async def find(there: Collections, session: AsyncClientSession, asked: Asked) -> Page:
    """One page of what a search finds."""
    start, query, meter = asked.start, asked.query, asked.meter
    by_head, _ = split(query)
    most = meter.budget.letters
    window = await narrowest(there, session, windows(by_head, asked.now), start=start, most=most)
    narrow: Document = {} if window.exact else filtered(All(by_head), asked.now)
    step = search_step(
        query, limit=asked.limit, start=start, exact=window.exact, now=asked.now, meter=meter
    )
    reading = Reading(there, session, window, narrow)
    found = await run_step(step, reading.read, meter, is_costly=is_costly(query))
    heads = tuple(head for _, head in found.hits)
    looked_at = len(heads)
    if not window.exact or needs_contents(query):
        looked_at = await size(there, session, window, start=start, end=found.last, most=most)
    if found.last is None:
        return Page(heads, looked_at=looked_at)
    back_to, _ = placed(found.last)
    return Page(heads, _after(found.last), looked_at, back_to)


async def find_ids(there: Collections, session: AsyncClientSession, asked: Asked) -> Names:
    """The ids one page would show; where an index knows them, little else is read."""
    start = asked.start
    by_head, _ = split(asked.query)
    window, *others = windows(by_head, asked.now)
    if others or not window.exact or needs_contents(asked.query):
        page = await find(there, session, asked)
        return Names(tuple(head.id for head in page.heads), page.after)
    most = min(asked.limit, asked.meter.budget.letters)
    wanted = window.letters(start=start)
    letters = there.letters.find(wanted, {"place": 1}, session=session)
    letters = letters.hint(window.index).sort("place", -1).limit(most + 1)
    rows = await letters.to_list()
    ids = tuple(one["_id"] for one in rows[:most])
    return Names(ids, _after(rows[most - 1]["place"]) if len(rows) > most else None)


def _after(left_off: bytes) -> str:
    return cursor(*placed(left_off))
