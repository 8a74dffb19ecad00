"""
The letters a search looks at: a stretch of one index, newest death first.

Among the terms that an index can answer, the one with the fewest letters leads.
Each `arm` of a window is a range of its index; the server merges the arms in order
without sorting them, so that the first letters cost no more than themselves.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from msgspec import Struct

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
from deadletter.core.query.trigrams import hints

from .body_index import largest
from .pool import Connection
from .search_terms import Sql, numbered
from .text_index import candidates

Place: TypeAlias = tuple[datetime, int]
"""When a letter died, and its number: the order of every list, descending."""

_WHOLE: Final = frozenset({"id", "state"})  # short, and indexed as they are
_LONG: Final = frozenset(
    {"source", "fingerprint", "error_name", "message_id"}
    | {"key", "business_key", "trace_id"}
)
_ARMS: Final = 8  # a term of more values than this does not lead
_SORTED: Final = 1_000  # letters that may have to be sorted
_NEWEST_FIRST: Final = "ORDER BY dead_at DESC, seq DESC"
_LETTERS: Final = "SELECT seq, dead_at FROM deadletter.letters WHERE"
_MARKS: Final = "SELECT letter AS seq, dead_at FROM deadletter.letter_marks WHERE"
_EVER: Final = (
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
)

_Lead: TypeAlias = tuple[str, tuple[Sql, ...], bool]
"""What selects from a table, ranges of an index, whether each is in order."""

_EVERYTHING: Final[_Lead] = (_LETTERS, (("true", []),), True)


class Window(Struct, frozen=True, kw_only=True):
    """A stretch of an index: its arms, within times from `low` to before `high`."""

    select: str
    arms: tuple[Sql, ...]
    low: datetime = _EVER[0]
    high: datetime = _EVER[1]
    in_order: bool = True  # False: it takes sorting all of it to get the newest
    exact: bool = False  # it holds what was asked for and nothing else

    def places(
        self,
        *,
        start: Place | None,
        end: Place | None = None,
        in_order: bool = True,
    ) -> Sql:
        """Where letters are, behind `start`, down to and with `end`, newest first."""
        number = "letter" if self.select is _MARKS else "seq"
        within = "dead_at >= ? AND dead_at < ?"
        limits: list[Any] = [self.low, self.high]
        if start is not None:
            within += f" AND (dead_at, {number}) < (?, ?)"
            limits += start
        if end is not None:
            within += f" AND (dead_at, {number}) >= (?, ?)"
            limits += end
        text = " UNION ALL ".join(
            f"({self.select} {where} AND {within})" for where, _ in self.arms
        )
        values = [value for _, some in self.arms for value in (*some, *limits)]
        return f"{text} {_NEWEST_FIRST if in_order else ''}", values


def windows(conjuncts: Iterable[Node], now: datetime) -> list[Window]:
    """Windows that each hold whatever fulfils all of these."""
    low, high = _EVER
    leads: list[_Lead] = []
    others = 0  # that took more than finding a place in an index
    for node in conjuncts:
        asked = condition(node, now) if isinstance(node, Term) else None
        if isinstance(asked, Between) and asked.attribute == "dead_at":
            low = max(low, asked.low) if isinstance(asked.low, datetime) else low
            high = min(high, asked.high) if isinstance(asked.high, datetime) else high
            continue
        lead = None if asked is None else _lead(asked)
        if lead is not None:
            leads.append(lead)
        # The beginning of a text may be that of another one as well.
        others += not (isinstance(asked, OneOf) and asked.attribute in _WHOLE and lead)
    exact = not others and len(leads) <= 1
    if not any(in_order for _, _, in_order in leads):
        exact = exact and not leads
        leads.append(_EVERYTHING)
    return [
        Window(
            select=select,
            arms=arms,
            in_order=in_order,
            low=low,
            high=high,
            exact=exact,
        )
        for select, arms, in_order in leads
    ]


async def text_window(connection: Connection, query: Node) -> Window | None:
    """The letters whose texts may fulfil a search, if an index can tell them."""
    told = hints(query, bodies=True)
    if told is not None and any(hint.in_body for hint in told):
        told = hints(query, bodies=await largest(connection) > 0)
    found = None if told is None else await candidates(connection, told, _SORTED)
    if found is None:
        return None
    return Window(select=_LETTERS, arms=(("seq = ANY(?)", [found]),), in_order=False)


async def narrowest(
    connection: Connection,
    candidates: Sequence[Window],
    *,
    start: Place | None,
    most: int,
) -> Window:
    """The window with the fewest letters; none is counted far beyond `most`."""
    if len(candidates) == 1:
        return candidates[0]
    sizes = [
        (await size(connection, window, start=start, most=most + 1), window)
        for window in candidates
    ]
    return min(
        ((n, window) for n, window in sizes if window.in_order or n <= _SORTED),
        key=lambda one: one[0],
    )[1]


async def size(
    connection: Connection,
    window: Window,
    *,
    start: Place | None,
    end: Place | None = None,
    most: int,
) -> int:
    """How many letters a window has, counted up to `most`."""
    text, values = window.places(start=start, end=end, in_order=False)
    counted = f"SELECT count(*) FROM ({text} LIMIT ?) w"  # noqa: S608 -- names are ours, values are bound
    return int(await connection.fetchval(numbered(counted), *values, most))


async def bottom(
    connection: Connection, window: Window, *, start: Place | None, depth: int
) -> Place | None:
    """The `depth`-th letter of a window; None when it has fewer."""
    text, values = window.places(start=start)
    row = await connection.fetchrow(
        numbered(f"{text} LIMIT 1 OFFSET ?"), *values, depth - 1
    )
    return None if row is None else (row[1], row[0])


def _lead(asked: Condition) -> _Lead | None:
    match asked:
        case OneOf("id", values) if _ARMS < len(values) <= _SORTED:
            # Each is one letter, so that sorting those there are takes no time.
            return _LETTERS, (("id = ANY(?)", [[*map(stored, values)]]),), False
        case OneOf(column, values) if column in _WHOLE | _LONG:
            return _values(column, values)
        case Like(column, (first, _, *_), False) if column in _LONG | {"id"}:
            return _prefix(column, first)
        case Either(conditions):
            return _names(conditions)
    return None


def _values(column: str, values: Iterable[str]) -> _Lead | None:
    found = sorted(set(values))
    if not 0 < len(found) <= _ARMS:
        return None
    where = f'"left"({column}, 200) = "left"(?, 200)'
    if column in _WHOLE:
        where = f"{column} = ?"
    arms = tuple((where, [stored(value)]) for value in found)
    return _MARKS if column == "state" else _LETTERS, arms, True


def _prefix(column: str, first: str) -> _Lead | None:
    if not first or not first[-1].isascii() or first[-1] == "\x7f":
        return None
    text = column if column == "id" else f'"left"({column}, 200)'
    ends = [stored(end[:200]) for end in (first, first[:-1] + chr(ord(first[-1]) + 1))]
    if len(first) > 200 or ends[0] > ends[1]:
        return None
    return _LETTERS, ((f"{text} >= ? AND {text} < ?", [*ends]),), False


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
