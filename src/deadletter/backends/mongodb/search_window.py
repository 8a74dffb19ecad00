"""
The letters a search looks at: a stretch of one index, newest death first.

Among the terms that an index can answer, the one with the fewest letters leads.
The index is named to the server: what it would rather take might be without bounds.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from msgspec import Struct
from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.escaping import stored
from deadletter.core.query import (
    Between,
    Condition,
    Either,
    Like,
    Node,
    OneOf,
    Term,
    condition,
)

from .schema import Collections, Document
from .search_terms import field_of
from .times import place

_FIRST: Final = place(datetime.min.replace(tzinfo=UTC))
_LAST: Final = b"\xff" * len(_FIRST)
_INDEXED: Final = frozenset(
    {"state", "source", "fingerprint", "error_name", "message_id"}
    | {"key", "business_key", "trace_id"}
)
_VALUES: Final = 8  # a term of more values than this does not lead
_SORTED: Final = 1_000  # letters that may have to be sorted

_Lead: TypeAlias = tuple[str, Document, bool]
"""The index, a range of it, whether its letters come in order."""

_EVERYTHING: Final[_Lead] = ("by_place", {}, True)


class Window(Struct, frozen=True, kw_only=True):
    """A stretch of an index, within places from `low` to before `high`."""

    index: str
    match: Document
    low: bytes = _FIRST
    high: bytes = _LAST
    in_order: bool = True  # False: it takes sorting all of it to get the newest
    exact: bool = False  # it holds what was asked for and nothing else

    def letters(self, *, start: bytes | None, end: bytes | None = None) -> Document:
        """Those behind `start`, down to and with `end`."""
        high = self.high if start is None else min(self.high, start)
        low = self.low if end is None else max(self.low, end)
        return {**self.match, "place": {"$gte": low, "$lt": high}}


def windows(conjuncts: Iterable[Node], now: datetime) -> list[Window]:
    """Windows that each hold whatever fulfils all of these."""
    low, high = _FIRST, _LAST
    leads: list[_Lead] = []
    others = 0  # that took more than finding a place in an index
    for node in conjuncts:
        asked = condition(node, now) if isinstance(node, Term) else None
        if isinstance(asked, Between) and asked.attribute == "dead_at":
            if isinstance(asked.low, datetime):
                low = max(low, place(asked.low))
            if isinstance(asked.high, datetime):
                high = min(high, place(asked.high))
            continue
        lead = None if asked is None else _lead(asked)
        if lead is not None:
            leads.append(lead)
        others += not (isinstance(asked, OneOf) and lead)
    exact = not others and len(leads) <= 1
    if not any(in_order for _, _, in_order in leads):
        exact = exact and not leads
        leads.append(_EVERYTHING)
    return [
        Window(
            index=index,
            match=match,
            in_order=in_order,
            low=low,
            high=high,
            exact=exact,
        )
        for index, match, in_order in leads
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
    fitting = [(n, one) for n, one in sizes if one.in_order or n <= _SORTED]
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
    """How many letters a window has, counted up to `most`."""
    return await there.letters.count_documents(
        window.letters(start=start, end=end),
        hint=window.index,
        limit=most,
        session=session,
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


def _lead(asked: Condition) -> _Lead | None:
    match asked:
        case OneOf(name, values) if name in _INDEXED:
            return _values(name, values)
        case OneOf("id", values) if len(values) <= _SORTED:
            ids = sorted(map(stored, values))
            return "_id_", {"_id": {"$in": ids}}, False
        case Like(name, (first, _, *_), False) if name in _INDEXED | {"id"}:
            return _prefix(name, first)
        case Either(conditions):
            return _names(conditions)
    return None


def _values(name: str, values: Iterable[str]) -> _Lead | None:
    found = sorted(set(map(stored, values)))
    if not 0 < len(found) <= _VALUES:
        return None
    return f"by_{name}", {name: {"$in": found}}, True


def _prefix(name: str, first: str) -> _Lead | None:
    # Whatever begins like this, and for odd endings nothing more exact.
    if not first or not first[-1].isascii() or not first[-1].isalnum():
        return None
    low, high = stored(first), stored(first[:-1]) + chr(ord(first[-1]) + 1)
    index = "_id_" if name == "id" else f"by_{name}"
    return index, {field_of(name): {"$gte": low, "$lt": high}}, False


def _names(conditions: Sequence[Condition]) -> _Lead | None:
    # The whole name of an error or its end: what follows the last dot is the
    # same in both, and has an index.
    names: set[str] = set()
    for asked in conditions:
        match asked:
            case Like("error_type" | "error_name", (name,), True):
                names.add(name.rpartition(".")[2])
            case _:
                return None
    return _values("error_name", names)
