"""
Search, newest death first, at a bounded cost.

SQL narrows down by columns, and `core.query` judges what that finds: heads alone
where they are enough, whole letters where the search is about contents.
"""

import sqlite3
from collections.abc import Collection, Generator, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias, overload

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Message
from deadletter.core.query import All, Like, Meter, Node, is_costly, needs_contents, split
from deadletter.core.query.filters import MOST_SORTED, Hint, Lead, filter_of, hints, leads_of
from deadletter.core.query.search_step import (
    CUT,
    Bottom,
    Contents,
    Found,
    FoundNames,
    Heads,
    Named,
    NamesStep,
    Sizes,
    Step,
    Wanted,
    cursor,
    names_step,
    place,
    search_step,
)
from deadletter.ports.letters import Names, Page

from . import body_index, text_index
from .letters_rows import HEAD, head_of, opened
from .sql import EPOCH, fetch, ids, micros, numbers, stored, when

Sql: TypeAlias = tuple[str, list[Any]]
"""A condition with a `?` for each of the values."""

Place: TypeAlias = tuple[int, int]
"""When a letter died, and its number: the order of every list, descending."""

_COLUMNS: Final = frozenset({*LetterHead.__struct_fields__, "error_name"})
_PIECES: Final = 4  # GLOB tries all ways to fit: more stars would be too many
_LONGEST: Final = 1000  # characters of a pattern SQLite is given to match
_GLOB: Final = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})
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
_NEWEST_FIRST: Final = "ORDER BY dead_at DESC, seq DESC"
_EVER: Final = (-(1 << 62), 1 << 62)


class SqliteFilters:
    """Filters as SQL conditions."""

    everything: Sql = ("1", [])
    nothing: Sql = ("0", [])

    def negated(self, part: Sql) -> Sql:
        """Return the opposite of a condition, which is never NULL."""
        return f"NOT {part[0]}", part[1]

    def all_of(self, parts: Sequence[Sql]) -> Sql:
        """Join conditions by AND."""
        return _joined(" AND ", parts)

    def any_of(self, parts: Sequence[Sql]) -> Sql:
        """Join conditions by OR."""
        return _joined(" OR ", parts)

    def one_of(self, attribute: str, values: Collection[str]) -> Sql:
        """Compare a column with values."""
        marks = ", ".join("?" * len(values))
        return _never_null(f"{_column(attribute)} IN ({marks})", [*map(stored, values)])

    def like(self, like: Like, *, sure: bool) -> Sql:
        """Compare a column with a pattern; odd text, stored as a blob, is doubtful."""
        pieces = [stored(piece) for piece in like.pieces]
        text = _column(like.attribute)
        odd = f"typeof({text}) = 'blob'"
        if any(isinstance(piece, bytes) for piece in pieces):
            return self.nothing if sure else (odd, [])  # only odd text has odd pieces
        if like.folded and like.attribute != "error_name":  # which is folded already
            text = f"lower({text})"
        pattern, is_exact = _glob(like.pieces)
        if len(like.pieces) == 1:
            test, value = f"{text} = ?", like.pieces[0]
        elif len(pattern) > _LONGEST:
            return self.nothing if sure else self.everything
        else:
            test, value = f"{text} GLOB ?", pattern
        if not sure:
            return _never_null(f"({odd} OR {test})", [value])
        if not is_exact:
            return self.nothing
        return _never_null(f"(NOT {odd} AND {test})", [value])

    def between(
        self, attribute: str, low: int | datetime | None, high: int | datetime | None
    ) -> Sql:
        """Compare a column with a range."""
        given = [(op, _bound(end)) for op, end in ((">=", low), ("<", high)) if end is not None]
        text = " AND ".join(f"{_column(attribute)} {op} ?" for op, _ in given)
        return _never_null(text or "1", [end for _, end in given])

    def present(self, attribute: str) -> Sql:
        """Require a value that is not empty."""
        return _never_null(f"{_column(attribute)} <> ''", [])

    def flagged(self, attribute: str) -> Sql:
        """Require a flag."""
        return _column(attribute), []


class SqliteIndexes:
    """
    Leads as ranges of named indexes.

    SQLite merges the arms of a lead in order without sorting them, so that the first
    letters cost no more than themselves.
    """

    every_letter: Lead[Sql] = Lead(_EVERY, (("1", []),))
    indexed = frozenset(_INDEXES)

    def by_values(self, attribute: str, values: Sequence[str]) -> Lead[Sql]:
        """Return the letters of a few values."""
        arms = tuple((f"{attribute} = ?", [stored(value)]) for value in values)
        return Lead(_INDEXES[attribute], arms)

    def by_prefix(self, attribute: str, prefix: str) -> Lead[Sql]:
        """Return the letters whose value begins like this."""
        ends = (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1))
        where = f"{attribute} >= ? AND {attribute} < ?"
        # Odd text is stored as a blob, and blobs stand apart from text in an index.
        arms: list[Sql] = [(where, [end.encode("utf-8", "surrogatepass") for end in ends])]
        if isinstance(stored(prefix), str):
            arms.append((where, [*ends]))
        return Lead(_INDEXES[attribute], tuple(arms), in_order=False)

    def by_ids(self, letters: Collection[str]) -> Lead[Sql]:
        """Return the letters of many ids."""
        arm: Sql = ("id IN (SELECT value FROM json_each(?))", [ids(letters)])
        return Lead(_INDEXES["id"], (arm,), in_order=False)


_FILTERS: Final = SqliteFilters()
_LEADS: Final = SqliteIndexes()


def sql(node: Node, now: datetime, *, sure: bool = False) -> Sql:
    """Return a search as a condition on columns; see `core.query.filters`."""
    return filter_of(node, now, _FILTERS, sure=sure)


def _column(attribute: str) -> str:
    assert attribute in _COLUMNS, f"{attribute} is no column"
    return attribute


def _bound(value: int | datetime) -> int:
    return micros(value) if isinstance(value, datetime) else value


def _joined(by: str, parts: Sequence[Sql]) -> Sql:
    text = by.join(part[0] for part in parts)
    return f"({text})", [value for part in parts for value in part[1]]


def _glob(pieces: tuple[str, ...]) -> tuple[str, bool]:
    """Return a pattern for GLOB, and whether it says all that the pieces say."""
    escaped = [piece.translate(_GLOB) for piece in pieces]
    if len(pieces) <= _PIECES:
        return "*".join(escaped), True
    return "*".join([*escaped[: _PIECES - 1], escaped[-1]]), False


def _never_null(text: str, values: list[Any]) -> Sql:
    # What is not known to be so is not so, and must stay that way when negated.
    return f"ifnull({text}, 0)", values


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
        """Return the condition on letters of the window, except for times."""
        text = " OR ".join(f"({where})" for where, _ in self.arms)
        return f"({text})", [value for _, values in self.arms for value in values]

    @property
    def narrows(self) -> bool:
        """Return whether its condition is cheap to check on a letter that was found."""
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
    """Return windows that each hold whatever fulfils all of these."""
    found = leads_of(conjuncts, now, _LEADS)
    return [
        Window(
            index=lead.index,
            arms=lead.arms,
            in_order=lead.in_order,
            low=_EVER[0] if found.low is None else micros(found.low),
            high=_EVER[1] if found.high is None else micros(found.high),
            exact=found.is_exact,
        )
        for lead in found.leads
    ]


def text_window(connection: sqlite3.Connection, query: Node) -> Window | None:
    """The letters whose texts may fulfil a search, if an index can tell them."""
    told = hints(query, bodies=body_index.largest(connection) > 0)
    found = None if told is None else find_hinted(connection, told, MOST_SORTED)
    if found is None:
        return None
    arm: Sql = ("seq IN (SELECT value FROM json_each(?))", [numbers(found)])
    return Window(index=_TEXTS, arms=(arm,), in_order=False)


def find_hinted(connection: sqlite3.Connection, given: list[Hint], most: int) -> list[int] | None:
    """
    Return the numbers of letters for which one of the hints may be true.

    Letters that are not indexed are included. Returns None if there are more than `most`.
    """
    is_odd = any(isinstance(stored(gram), bytes) for one in given for gram in one.grams)
    if is_odd or not text_index.is_possible():  # odd text is not in the index
        return None
    found: set[int] = set()
    for selects, in_body in ((text_index.SELECTS, False), (body_index.SELECTS, True)):
        asked = [hint.grams for hint in given if hint.in_body is in_body]
        some = text_index.matching(connection, selects, asked, most) if asked else []
        if some is None:
            return None
        found.update(some)
    return None if len(found) > most else sorted(found)


def narrowest(
    connection: sqlite3.Connection, candidates: Sequence[Window], *, start: Place | None, most: int
) -> Window:
    """The window with the fewest letters; none is counted far beyond `most`."""
    if len(candidates) == 1:
        return candidates[0]
    best: Window | None = None
    fewest = most + 1
    for window in sorted(candidates, key=lambda one: _ORDER.index(one.index)):
        n = size(connection, window, start=start, most=fewest)
        if not window.in_order and n > MOST_SORTED:
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
    """Return the number of letters in a window, counted up to `most`."""
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


def _within(where: str, values: list[Any], low: int, high: int) -> Sql:
    return f"{where} AND dead_at >= ? AND dead_at < ?", [*values, low, high]


_SIZED: Final = """
SELECT h.dead_at, h.seq, length(c.body) + length(c.rest) AS size
FROM ({}) h CROSS JOIN letter_contents c ON c.letter = h.seq
ORDER BY h.dead_at DESC, h.seq DESC
"""
_OPENED: Final = f"""
SELECT h.*, h.seq AS tag, '' AS frame, c.digest, c.rest,
    CASE WHEN length(c.body) > {CUT} THEN substr(c.body, 1, {CUT}) ELSE c.body END
    AS body
FROM json_each(?) w CROSS JOIN letters h ON h.seq = w.value
CROSS JOIN letter_contents c ON c.letter = h.seq
"""  # noqa: S608 -- made of constants
_NAMED: Final = "id, dead_at, seq"
_DOUBTED: Final = "id, dead_at, seq, sure"
_UNOPENED: Final = Message(id="", body=b"", sent_at=EPOCH)
_Letters: TypeAlias = list[tuple[Place, DeadLetter]]


class Reading(Struct, frozen=True):
    """One step of a search: a range of an index, and the condition on its letters."""

    connection: sqlite3.Connection
    window: Window
    narrow: list[Sql]
    sure: Sql = ("1", [])  # true only of letters that match

    def read(self, wanted: Wanted[Place]) -> Any:
        """Read what the search step asks for."""
        match wanted:
            case Bottom(after, depth):
                return bottom(self.connection, self.window, start=after, depth=depth)
            case Heads(after, end, most):
                return self._heads(after, end, most)
            case Sizes(after, end, most):
                return self._sizes(after, end, most)
            case Contents(places):
                return self._contents(places)
            case Named(after, end, most):
                return self._names(after, end, most)

    def _heads(self, after: Place | None, end: Place | None, most: int) -> _Letters:
        text, values = self._select(after, end)
        rows = fetch(self.connection, HEAD, f"{text} LIMIT ?", [*values, most])
        return [
            ((row[17], row[0]), DeadLetter(head=head_of(row), message=_UNOPENED)) for row in rows
        ]

    def _names(
        self, after: Place | None, end: Place | None, most: int
    ) -> list[tuple[Place, str, bool]]:
        text, values = self._select(after, end)
        where, more = self.sure
        select = f"SELECT h.id, h.dead_at, h.seq, {where} AS sure FROM ({text} LIMIT ?) h"  # noqa: S608 -- names are ours, values are bound
        rows = fetch(self.connection, _DOUBTED, select, [*more, *values, most])
        return [((dead_at, seq), id_, bool(sure)) for id_, dead_at, seq, sure in rows]

    def _sizes(self, after: Place | None, end: Place | None, most: int) -> list[tuple[Place, int]]:
        text, values = self._select(after, end)
        select = _SIZED.format(f"{text} LIMIT ?")
        rows = fetch(self.connection, "dead_at, seq, size", select, [*values, most])
        return [((dead_at, seq), size) for dead_at, seq, size in rows]

    def _contents(self, places: Sequence[Place]) -> _Letters:
        seqs = numbers(seq for _, seq in places)
        found = opened(self.connection, _OPENED, (seqs,))
        return list(zip(places, found, strict=True))

    def _select(self, after: Place | None, end: Place | None) -> Sql:
        return self.window.select("*", start=after, end=end, also=self.narrow)


def find(
    connection: sqlite3.Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
    meter: Meter,
) -> Page:
    """One page of what a search finds."""
    _check(limit)
    start = None if after is None else _place(after)
    most = meter.budget.letters
    reading = _reading(connection, query, start, now, most)
    window = reading.window
    step = search_step(query, limit=limit, start=start, exact=window.exact, now=now, meter=meter)
    found = _run(step, reading)
    heads = tuple(head for _, head in found.hits)
    if window.exact and not needs_contents(query):
        looked_at = len(heads)
    else:
        looked_at = size(connection, window, start=start, end=found.last, most=most)
    if found.last is None:
        return Page(heads, looked_at=looked_at)
    back_to = when(found.last[0])
    return Page(heads, cursor(back_to, found.last[1]), looked_at, back_to)


def _reading(
    connection: sqlite3.Connection, query: Node, start: Place | None, now: datetime, most: int
) -> Reading:
    """Choose the index that leads a search, and the conditions on what it holds."""
    by_head, _ = split(query)
    candidates = windows(by_head, now)
    if (texts := text_window(connection, query)) is not None:
        candidates.append(texts)
    window = narrowest(connection, candidates, start=start, most=most)
    narrow: list[Sql] = []
    if not window.exact:  # else what is read is all that is looked at
        # What indexes know first: most is settled by them.
        others = (one for one in candidates if one is not window and one.narrows)
        narrow = [other.condition for other in others]
        narrow.append(sql(All(by_head), now))
    return Reading(connection, window, narrow, sql(query, now, sure=True))


@overload
def _run(step: Step[Place], reading: Reading) -> Found[Place]: ...
@overload
def _run(step: NamesStep[Place], reading: Reading) -> FoundNames[Place] | None: ...
def _run(step: Generator[Wanted[Place], Any, Any], reading: Reading) -> Any:
    try:
        wanted = next(step)
        while True:
            wanted = step.send(reading.read(wanted))
    except StopIteration as end:
        return end.value


def find_ids(
    connection: sqlite3.Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
    meter: Meter,
) -> Names:
    """The ids one page would show; where columns know them, no heads are read."""
    _check(limit)
    start = None if after is None else _place(after)
    by_head, _ = split(query)
    window, *others = windows(by_head, now)
    if others or not window.exact or needs_contents(query):
        found = None
        if not is_costly(query):
            most = max(limit, MOST_SORTED)
            reading = _reading(connection, query, start, now, most)
            found = _run(names_step(query, limit=limit, start=start, meter=meter), reading)
        if found is None:
            page = find(connection, query, limit=limit, after=after, now=now, meter=meter)
            return Names(tuple(head.id for head in page.heads), page.after)
        if found.last is None:
            return Names(found.ids)
        return Names(found.ids, cursor(when(found.last[0]), found.last[1]))
    most = min(limit, meter.budget.letters)
    select, values = window.select(_NAMED, start=start)
    rows = fetch(connection, _NAMED, f"{select} LIMIT ?", [*values, most + 1])
    ids = tuple(row[0] for row in rows[:most])
    if len(rows) <= most:
        return Names(ids)
    _, dead_at, seq = rows[most - 1]
    return Names(ids, cursor(when(dead_at), seq))


def _check(limit: int) -> None:
    if limit < 1:
        raise ConfigError(f"a page of {limit} letters: ask for at least one")


def _place(after: str) -> Place:
    dead_at, seq = place(after)
    return micros(dead_at), seq
