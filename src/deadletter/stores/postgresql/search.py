"""
Search, newest death first, at a bounded cost.

SQL narrows down by columns, and `core.query` judges what that finds: heads alone
where they are enough, whole letters where the search is about contents.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.letter import LetterHead
from deadletter.core.query import All, Like, Meter, Node, is_costly, needs_contents, split
from deadletter.core.query.filters import MOST_SORTED, Lead, filter_of, hints, leads_of
from deadletter.core.query.search_step import (
    CUT,
    Bottom,
    Contents,
    FoundNames,
    Heads,
    Named,
    NamesStep,
    Sizes,
    Wanted,
    cursor,
    names_step,
    place,
    search_step,
)
from deadletter.core.text import MARK, shown, stored
from deadletter.ports.letters import Names, Page, run_step

from .body_index import largest
from .database import Connection
from .letters_rows import HEAD, opened, unopened
from .text_index import candidates

Sql: TypeAlias = tuple[str, list[Any]]
"""A condition with a `?` for each of the values."""

Place: TypeAlias = tuple[datetime, int]
"""When a letter died, and its number: the order of every list, descending."""

_COLUMNS: Final = frozenset({*LetterHead.__struct_fields__, "error_name"})
_MARKED: Final = frozenset({"state", "replays", "revision"})
_PIECES: Final = 4  # more stars would be too many ways to try
_LONGEST: Final = 1000  # characters of a pattern the server is given to match
_LIKE: Final = str.maketrans({"%": r"\%", "_": r"\_", "\\": r"\\"})
_MOST: Final = 1 << 62
_WHOLE: Final = frozenset({"id", "state"})  # short, and indexed as they are
_LONG: Final = frozenset(
    {"source", "fingerprint", "error_name", "message_id"} | {"key", "business_key", "trace_id"}
)
_LEADING: Final = re.compile(r'(?:"left"\()?(\w+)')
# Those first that mostly tell the fewest letters from all others.
_ORDER: Final = (
    *("id", "seq", "message_id", "trace_id", "business_key", "key"),
    *("fingerprint", "error_name", "source", "state", "true"),
)
_FEW: Final = 100  # letters that are read sooner than others are counted
_NEWEST_FIRST: Final = "ORDER BY dead_at DESC, seq DESC"
_LETTERS: Final = "SELECT seq, dead_at FROM deadletter.letters WHERE"
_MARKS: Final = "SELECT letter AS seq, dead_at FROM deadletter.letter_marks WHERE"
_EVER: Final = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


class PostgresqlFilters:
    """Filters as SQL conditions."""

    everything: Sql = ("true", [])
    nothing: Sql = ("false", [])

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
        return _never_null(f"{_column(attribute)} = ANY(?)", [[*map(stored, values)]])

    def like(self, like: Like, *, sure: bool) -> Sql:
        """Compare a column with a pattern; escaped text is doubtful."""
        column = text = _column(like.attribute)
        if like.folded and like.attribute != "error_name":  # which is folded already
            text = f"lower({text})"
        pattern, is_exact = _pattern(like.pieces)
        if len(like.pieces) == 1:
            test, value = f"{text} = ?", stored(like.pieces[0])
        elif len(pattern) > _LONGEST:
            return self.nothing if sure else self.everything
        else:
            test, value = f"{text} LIKE ?", pattern
        if not sure:
            return _never_null(f"(strpos({column}, ?) > 0 OR {test})", [MARK, value])
        if not is_exact:
            return self.nothing
        return _never_null(f"(strpos({column}, ?) = 0 AND {test})", [MARK, value])

    def between(
        self, attribute: str, low: int | datetime | None, high: int | datetime | None
    ) -> Sql:
        """Compare a column with a range."""
        kind = "timestamptz" if attribute.endswith("_at") else "bigint"
        given = [(op, _bound(end)) for op, end in ((">=", low), ("<", high)) if end is not None]
        text = " AND ".join(f"{_column(attribute)} {op} ?::{kind}" for op, _ in given)
        return _never_null(text or "true", [end for _, end in given])

    def present(self, attribute: str) -> Sql:
        """Require a value that is not empty."""
        return _never_null(f"{_column(attribute)} <> ''", [])

    def flagged(self, attribute: str) -> Sql:
        """Require a flag."""
        return _column(attribute), []


class PostgresqlIndexes:
    """
    Leads as selects from the table that has the index.

    The server merges the arms of a lead in order without sorting them, so that the
    first letters cost no more than themselves.
    """

    every_letter: Lead[Sql] = Lead(_LETTERS, (("true", []),))
    indexed = _WHOLE | _LONG

    def by_values(self, attribute: str, values: Sequence[str]) -> Lead[Sql]:
        """Return the letters of a few values; of long ones, those that begin alike."""
        is_whole = attribute in _WHOLE
        where = f"{attribute} = ?" if is_whole else f'"left"({attribute}, 200) = "left"(?, 200)'
        arms = tuple((where, [stored(value)]) for value in values)
        return Lead(_MARKS if attribute == "state" else _LETTERS, arms, is_exact=is_whole)

    def by_prefix(self, attribute: str, prefix: str) -> Lead[Sql] | None:
        """Return the letters whose value begins like this."""
        text = attribute if attribute == "id" else f'"left"({attribute}, 200)'
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        ends = [stored(one[:200]) for one in (prefix, end)]
        if attribute == "state" or len(prefix) > 200 or ends[0] > ends[1]:
            return None
        return Lead(_LETTERS, ((f"{text} >= ? AND {text} < ?", [*ends]),), in_order=False)

    def by_ids(self, ids: Collection[str]) -> Lead[Sql]:
        """Return the letters of many ids."""
        return Lead(_LETTERS, (("id = ANY(?)", [[*map(stored, ids)]]),), in_order=False)


_FILTERS: Final = PostgresqlFilters()
_LEADS: Final = PostgresqlIndexes()


def sql(node: Node, now: datetime, *, sure: bool = False) -> Sql:
    """Return a search as a condition on columns; see `core.query.filters`."""
    return filter_of(node, now, _FILTERS, sure=sure)


def numbered(text: str) -> str:
    """Return a text with its `?` as the server wants them: $1, $2 …"""
    first, *rest = text.split("?")
    return first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))


def _column(attribute: str) -> str:
    assert attribute in _COLUMNS, f"{attribute} is no column"
    return f"m.{attribute}" if attribute in _MARKED else f"l.{attribute}"


def _bound(value: int | datetime) -> int | datetime:
    return value if isinstance(value, datetime) else min(max(value, -_MOST), _MOST)


def _joined(by: str, parts: Sequence[Sql]) -> Sql:
    text = by.join(part[0] for part in parts)
    return f"({text})", [value for part in parts for value in part[1]]


def _pattern(pieces: tuple[str, ...]) -> tuple[str, bool]:
    """Return a pattern for LIKE, and whether it says all that the pieces say."""
    escaped = [stored(piece).translate(_LIKE) for piece in pieces]
    if len(pieces) <= _PIECES:
        return "%".join(escaped), True
    return "%".join([*escaped[: _PIECES - 1], escaped[-1]]), False


def _never_null(text: str, values: list[Any]) -> Sql:
    # What is not known to be so is not so, and must stay that way when negated.
    return f"coalesce({text}, false)", values


class Window(Struct, frozen=True, kw_only=True):
    """A stretch of an index: its arms, within times from `low` to before `high`."""

    select: str
    arms: tuple[Sql, ...]
    low: datetime = _EVER[0]
    high: datetime = _EVER[1]
    in_order: bool = True  # False: it takes sorting all of it to get the newest
    exact: bool = False  # it holds what was asked for and nothing else

    @property
    def attribute(self) -> str:
        """Return the column that its arms begin with; `true` for every letter."""
        found = _LEADING.match(self.arms[0][0])
        return "true" if found is None else found[1]

    def places(
        self, *, start: Place | None, end: Place | None = None, in_order: bool = True
    ) -> Sql:
        """Return the statement for letters after `start` to `end` inclusive, newest first."""
        number = "letter" if self.select is _MARKS else "seq"
        within = "dead_at >= ? AND dead_at < ?"
        limits: list[Any] = [self.low, self.high]
        if start is not None:
            within += f" AND (dead_at, {number}) < (?, ?)"
            limits += start
        if end is not None:
            within += f" AND (dead_at, {number}) >= (?, ?)"
            limits += end
        order = _NEWEST_FIRST if in_order else ""
        arms = [f"{self.select} {where} AND {within} {order}" for where, _ in self.arms]
        values = [value for _, some in self.arms for value in (*some, *limits)]
        if len(arms) == 1:
            return arms[0], values
        # Each arm is put in order as well: the server merges those that are.
        text = " UNION ALL ".join(f"({arm})" for arm in arms)
        return f"{text} {order}", values


def windows(conjuncts: Iterable[Node], now: datetime) -> list[Window]:
    """Return windows that each hold whatever fulfils all of these."""
    found = leads_of(conjuncts, now, _LEADS)
    return [
        Window(
            select=lead.index,
            arms=lead.arms,
            in_order=lead.in_order,
            low=found.low or _EVER[0],
            high=found.high or _EVER[1],
            exact=found.is_exact,
        )
        for lead in found.leads
    ]


async def text_window(connection: Connection, query: Node) -> Window | None:
    """The letters whose texts may fulfil a search, if an index can tell them."""
    told = hints(query, bodies=True)
    if told is not None and any(hint.in_body for hint in told):
        told = hints(query, bodies=await largest(connection) > 0)
    found = None if told is None else await candidates(connection, told, MOST_SORTED)
    if found is None:
        return None
    return Window(select=_LETTERS, arms=(("seq = ANY(?)", [found]),), in_order=False)


async def narrowest(
    connection: Connection, candidates: Sequence[Window], *, start: Place | None, most: int
) -> Window:
    """The window with the fewest letters; none is counted far beyond `most`."""
    if len(candidates) == 1:
        return candidates[0]
    best: Window | None = None
    fewest = most + 1
    for window in sorted(candidates, key=lambda one: _ORDER.index(one.attribute)):
        n = await size(connection, window, start=start, most=fewest)
        if not window.in_order and n > MOST_SORTED:
            continue
        if best is None or n < fewest:
            best, fewest = window, n
        if fewest <= _FEW:
            break
    assert best is not None, "some window is in order"
    return best


async def size(
    connection: Connection,
    window: Window,
    *,
    start: Place | None,
    end: Place | None = None,
    most: int,
) -> int:
    """Return the number of letters in a window, counted up to `most`."""
    text, values = window.places(start=start, end=end, in_order=False)
    counted = f"SELECT count(*) FROM ({text} LIMIT ?) w"  # noqa: S608 -- names are ours, values are bound
    return int(await connection.fetchval(numbered(counted), *values, most))


async def bottom(
    connection: Connection, window: Window, *, start: Place | None, depth: int
) -> Place | None:
    """The `depth`-th letter of a window; None when it has fewer."""
    text, values = window.places(start=start)
    row = await connection.fetchrow(numbered(f"{text} LIMIT 1 OFFSET ?"), *values, depth - 1)
    return None if row is None else (row[1], row[0])


_LETTER: Final = "JOIN deadletter.letters l ON l.seq = w.seq"
_MARK: Final = "JOIN deadletter.letter_marks m ON m.letter = w.seq"
_JOIN: Final = f"{_LETTER} {_MARK}"
_SEARCH_NEWEST_FIRST: Final = "ORDER BY w.dead_at DESC, w.seq DESC LIMIT ?"
_SIZE: Final = "octet_length(c.body) + octet_length(c.rest)"
_OPENED: Final = f"""
SELECT {HEAD}, c.rest, substr(c.body, 1, {CUT})
FROM unnest($1::bigint[]) AS w (seq) {_JOIN}
JOIN deadletter.letter_contents c ON c.letter = w.seq
"""  # noqa: S608 -- made of constants


class Reading(Struct, frozen=True):
    """One step of a search: a range of an index, and the condition on its letters."""

    connection: Connection
    window: Window
    narrow: Sql
    sure: Sql = ("true", [])  # true only of letters that match

    async def read(self, wanted: Wanted[Place]) -> Any:
        """Read what the search step asks for."""
        match wanted:
            case Bottom(after, depth):
                return await bottom(self.connection, self.window, start=after, depth=depth)
            case Heads(after, end, most):
                rows = await self._rows(HEAD, _JOIN, after, end, most)
                return [((row[17], row[0]), unopened(row)) for row in rows]
            case Sizes(after, end, most):
                contents = f"{_JOIN} JOIN deadletter.letter_contents c ON c.letter = w.seq"
                columns = f"w.dead_at, w.seq, {_SIZE}"
                rows = await self._rows(columns, contents, after, end, most)
                return [((dead_at, seq), size) for dead_at, seq, size in rows]
            case Contents(places):
                rows = await self.connection.fetch(_OPENED, [seq for _, seq in places])
                return [((row[17], row[0]), opened(row)) for row in rows]
            case Named(after, end, most):
                where, values = self.sure
                columns = f"w.dead_at, w.seq, l.id, {where}"
                # Marks are in a table of their own, and most searches are not about them.
                join = _JOIN if "m." in f"{where} {self.narrow[0]}" else _LETTER
                rows = await self._rows(columns, join, after, end, most, values)
                return [((row[0], row[1]), shown(row[2]), row[3]) for row in rows]

    async def _rows(  # noqa: PLR0917 -- a range, and what is read of it
        self,
        columns: str,
        join: str,
        after: Place | None,
        end: Place | None,
        most: int,
        selected: Sequence[Any] = (),
    ) -> list[Any]:
        places, values = self.window.places(start=after, end=end)
        where, more = self.narrow
        rows: list[Any] = await self.connection.fetch(
            numbered(
                f"SELECT {columns} FROM ({places}) w {join}"  # noqa: S608 -- names are ours, values are bound
                f" WHERE {where} {_SEARCH_NEWEST_FIRST}"
            ),
            *selected,
            *values,
            *more,
            most,
        )
        return rows


async def find(
    connection: Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
    meter: Meter,
) -> Page:
    """One page of what a search finds."""
    _check(limit)
    start = None if after is None else place(after)
    most = meter.budget.letters
    reading = await _reading(connection, query, start, now, most)
    window = reading.window
    step = search_step(query, limit=limit, start=start, exact=window.exact, now=now, meter=meter)
    found = await run_step(step, reading.read, meter, is_costly=is_costly(query))
    heads = tuple(head for _, head in found.hits)
    if window.exact and not needs_contents(query):
        looked_at = len(heads)
    else:
        looked_at = await size(connection, window, start=start, end=found.last, most=most)
    if found.last is None:
        return Page(heads, looked_at=looked_at)
    return Page(heads, cursor(*found.last), looked_at, found.last[0])


async def _reading(
    connection: Connection, query: Node, start: Place | None, now: datetime, most: int
) -> Reading:
    """Choose the index that leads a search, and the condition on what it holds."""
    by_head, _ = split(query)
    candidates = windows(by_head, now)
    if (texts := await text_window(connection, query)) is not None:
        candidates.append(texts)
    window = await narrowest(connection, candidates, start=start, most=most)
    narrow = _FILTERS.everything if window.exact else sql(All(by_head), now)
    return Reading(connection, window, narrow, sql(query, now, sure=True))


async def find_ids(
    connection: Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
    meter: Meter,
) -> Names:
    """The ids one page would show; where columns know them, little else is read."""
    _check(limit)
    by_head, _ = split(query)
    window, *others = windows(by_head, now)
    if others or not window.exact or needs_contents(query):
        found = None
        if not is_costly(query):
            start = None if after is None else place(after)
            most = max(limit, MOST_SORTED)
            reading = await _reading(connection, query, start, now, most)
            step = names_step(query, limit=limit, start=start, meter=meter)
            found = await _run_names(step, reading)
        if found is None:
            page = await find(connection, query, limit=limit, after=after, now=now, meter=meter)
            return Names(tuple(head.id for head in page.heads), page.after)
        return Names(found.ids, None if found.last is None else cursor(*found.last))
    most = min(limit, meter.budget.letters)
    return await _named(connection, window, most, after)


async def _run_names(step: NamesStep[Place], reading: Reading) -> FoundNames[Place] | None:
    try:
        wanted = next(step)
        while True:
            wanted = step.send(await reading.read(wanted))
    except StopIteration as end:
        found: FoundNames[Place] | None = end.value
        return found


async def _named(connection: Connection, window: Window, most: int, after: str | None) -> Names:
    text, values = window.places(start=None if after is None else place(after))
    # In one row: of all but the last only the id is wanted.
    ids, *last = await connection.fetchrow(
        numbered(
            "SELECT array_agg(id), (array_agg(dead_at))[?], (array_agg(seq))[?]"  # noqa: S608 -- names are ours, values are bound
            f" FROM (SELECT l.id, w.dead_at, w.seq FROM ({text} LIMIT ?) w"
            " JOIN deadletter.letters l ON l.seq = w.seq"
            " ORDER BY w.dead_at DESC, w.seq DESC) named"
        ),
        *(most, most),
        *values,
        most + 1,
    )
    names = tuple(map(shown, ids or ()))
    if len(names) <= most:
        return Names(names)
    return Names(names[:most], cursor(*last))


def _check(limit: int) -> None:
    if limit < 1:
        raise ConfigError(f"a page of {limit} letters: ask for at least one")
