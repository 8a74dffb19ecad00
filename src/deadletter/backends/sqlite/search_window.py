"""
The letters a search looks at: a stretch of one index, newest death first.

Among the terms that an index can answer, the one with the fewest letters leads.
Each `arm` of a window is a range of its index; SQLite merges the arms in order
without sorting them, so that the first letters cost no more than themselves.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from msgspec import Struct

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
from .search_terms import Sql, bound
from .sql import ids, numbers, stored
from .text_index import candidates

Place: TypeAlias = tuple[int, int]
"""When a letter died, and its number: the order of every list, descending."""

# Those first that mostly tell the fewest letters from all others.
_INDEXES: Final = {
    "id": "letters_by_id",
    "message_id": "letters_by_message",
    "trace_id": "letters_by_trace",
    "business_key": "letters_by_business_key",
    "key": "letters_by_key",
    "fingerprint": "letters_by_group",
    "error_name": "letters_by_error",
    "source": "letters_by_source",
    "state": "letters_by_state",
}
_EVERY: Final = "letters_by_death"
_TEXTS: Final = "letter_texts"
_ORDER: Final = (*_INDEXES.values(), _TEXTS, _EVERY)
_ARMS: Final = 8  # a term of more values than this does not lead
_SORTED: Final = 1_000  # letters that may have to be sorted
_NEWEST_FIRST: Final = "ORDER BY dead_at DESC, seq DESC"

_Lead: TypeAlias = tuple[str, tuple[Sql, ...], bool]
"""An index, ranges of it, and whether each is in order by itself."""

_EVERYTHING: Final[_Lead] = (_EVERY, (("1", []),), True)
_EVER: Final = (-(1 << 62), 1 << 62)


class Window(Struct, frozen=True, kw_only=True):
    """A stretch of an index: its arms, within times from `low` to before `high`."""

    index: str
    arms: tuple[Sql, ...]
    low: int = _EVER[0]
    high: int = _EVER[1]
    in_order: bool = True  # False: it takes sorting all of it to get the newest
    exact: bool = False  # it holds what was asked for and nothing else

    @property
    def condition(self) -> Sql:
        """What is true of every letter in it, but for its times."""
        text = " OR ".join(f"({where})" for where, _ in self.arms)
        return f"({text})", [value for _, values in self.arms for value in values]

    @property
    def narrows(self) -> bool:
        """Whether its condition is quickly judged of a letter that was found."""
        return self.index != _TEXTS

    @property
    def _by(self) -> str:
        # By their numbers, where an index outside the table has told these.
        return f"INDEXED BY {self.index}" if self.narrows else "NOT INDEXED"

    def select(
        self,
        columns: str,
        *,
        start: Place | None,
        end: Place | None = None,
        also: Sequence[Sql] = (),
        in_order: bool = True,
    ) -> Sql:
        """
        Letters behind `start`, down to and with `end`, newest first.

        Those of which `also` is true: asked of each arm, so that SQLite need not
        look at a letter when its index can say no.
        """
        parts: list[Sql] = []
        for where, values in self.arms:
            wheres = [where, *(text for text, _ in also)]
            more = [value for _, some in also for value in some]
            arm = (" AND ".join(wheres), [*values, *more])
            parts += self._ranges(arm, start, end)
        text = " UNION ALL ".join(
            f"SELECT {columns} FROM letters {self._by} WHERE {where}"  # noqa: S608 -- names are ours, values are bound
            for where, _ in parts
        )
        values = [value for part in parts for value in part[1]]
        return f"{text} {_NEWEST_FIRST if in_order else ''}", values

    def _ranges(self, arm: Sql, start: Place | None, end: Place | None) -> list[Sql]:
        where, values = arm
        low, high = self.low, self.high
        if end is not None:
            low = max(low, end[0])
            where = f"{where} AND (dead_at > ? OR seq >= ?)"
            values = [*values, *end]
        if start is None:
            return [_within(where, values, low, high)]
        older = _within(where, values, low, min(high, start[0]))
        if not low <= start[0] < high:
            return [older]
        # Many may have died at one moment. Asked for apart, those of that moment
        # that are left are found by the index as well.
        return [(f"{where} AND dead_at = ? AND seq < ?", [*values, *start]), older]


def windows(conjuncts: Iterable[Node], now: datetime) -> list[Window]:
    """Windows that each hold whatever fulfils all of these."""
    low, high = _EVER
    leads: list[_Lead] = []
    others = 0  # that took more than finding a place in an index
    for node in conjuncts:
        if not isinstance(node, Term):
            others += 1
            continue
        asked = condition(node, now)
        others += not isinstance(asked, Between | OneOf)
        if isinstance(asked, Between) and asked.attribute == "dead_at":
            low = low if asked.low is None else max(low, bound(asked.low))
            high = high if asked.high is None else min(high, bound(asked.high))
        elif (lead := _lead(asked)) is not None:
            leads.append(lead)
        else:
            others += 1
    exact = not others and len(leads) <= 1
    if not any(in_order for _, _, in_order in leads):
        exact = exact and not leads
        leads.append(_EVERYTHING)
    return [
        Window(
            index=index,
            arms=arms,
            in_order=in_order,
            low=low,
            high=high,
            exact=exact,
        )
        for index, arms, in_order in leads
    ]


def text_window(connection: sqlite3.Connection, query: Node) -> Window | None:
    """The letters whose texts may fulfil a search, if an index can tell them."""
    told = hints(query, bodies=largest(connection) > 0)
    found = None if told is None else candidates(connection, told, _SORTED)
    if found is None:
        return None
    arm: Sql = ("seq IN (SELECT value FROM json_each(?))", [numbers(found)])
    return Window(index=_TEXTS, arms=(arm,), in_order=False)


def narrowest(
    connection: sqlite3.Connection,
    candidates: Sequence[Window],
    *,
    start: Place | None,
    most: int,
) -> Window:
    """The window with the fewest letters; none is counted far beyond `most`."""
    if len(candidates) == 1:
        return candidates[0]
    best: Window | None = None
    fewest = most + 1
    for window in sorted(candidates, key=lambda one: _ORDER.index(one.index)):
        n = size(connection, window, start=start, most=fewest)
        if not window.in_order and n > _SORTED:
            continue
        if best is None or n < fewest:
            best, fewest = window, n
    assert best is not None, "some window is in order"
    return best


def size(
    connection: sqlite3.Connection,
    window: Window,
    *,
    start: Place | None,
    end: Place | None = None,
    most: int,
) -> int:
    """How many letters a window has, counted up to `most`."""
    text, values = window.select("1", start=start, end=end, in_order=False)
    counted = f"SELECT count(*) FROM ({text} LIMIT ?)"  # noqa: S608 -- as above
    (n,) = connection.execute(counted, [*values, most]).fetchone()
    return int(n)


def bottom(
    connection: sqlite3.Connection, window: Window, *, start: Place | None, depth: int
) -> Place | None:
    """The `depth`-th letter of a window; None when it has fewer."""
    text, values = window.select("dead_at, seq", start=start)
    found = connection.execute(f"{text} LIMIT 1 OFFSET ?", [*values, depth - 1])
    place: Place | None = found.fetchone()
    return place


def _lead(asked: Condition) -> _Lead | None:
    match asked:
        case OneOf("id", values) if _ARMS < len(values) <= _SORTED:
            # Each is one letter, so that sorting those there are takes no time.
            arm: Sql = ("id IN (SELECT value FROM json_each(?))", [ids(values)])
            return _INDEXES["id"], (arm,), False
        case OneOf(column, values) if column in _INDEXES:
            return _values(column, values)
        case Like(column, (first, _, *_), False) if column in _INDEXES:
            return _prefix(column, first)
        case Either(conditions):
            return _names(conditions)
    return None


def _values(column: str, values: Iterable[str]) -> _Lead | None:
    found = sorted(set(values))
    if not 0 < len(found) <= _ARMS:
        return None
    arms = tuple((f"{column} = ?", [stored(value)]) for value in found)
    return _INDEXES[column], arms, True


def _prefix(column: str, first: str) -> _Lead | None:
    if not first or not first[-1].isascii() or first[-1] == "\x7f":
        return None
    ends = (first, first[:-1] + chr(ord(first[-1]) + 1))
    where = f"{column} >= ? AND {column} < ?"
    # Odd text is stored as a blob, and blobs stand apart from text in an index.
    arms: list[Sql] = [(where, [end.encode("utf-8", "surrogatepass") for end in ends])]
    if isinstance(stored(first), str):
        arms.append((where, [*ends]))
    return _INDEXES[column], tuple(arms), False


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


def _within(where: str, values: list[Any], low: int, high: int) -> Sql:
    return f"{where} AND dead_at >= ? AND dead_at < ?", [*values, low, high]
