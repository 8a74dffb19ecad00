"""
A search in SQL, as far as columns can answer it.

What comes out is never too narrow: it may let through letters that do not match
(odd text, patterns of many stars, everything about contents), but holds back none
that do. Whoever uses it judges what it finds by `core.query`, which has the last
word, so that all stores agree.
"""

from datetime import datetime
from typing import Any as Anything
from typing import Final, TypeAlias

from deadletter.core.escaping import MARK, stored
from deadletter.core.letter import LetterHead
from deadletter.core.query import (
    All,
    Any,
    Between,
    Condition,
    Either,
    Flagged,
    Like,
    Node,
    Not,
    OneOf,
    Present,
    Term,
    Word,
    condition,
    needs_contents,
)

Sql: TypeAlias = tuple[str, list[Anything]]
"""A text with a `?` for each of the values."""

_COLUMNS: Final = frozenset({*LetterHead.__struct_fields__, "error_name"})
_MARKED: Final = frozenset({"state", "replays", "revision"})
_PIECES: Final = 4  # more stars would be too many ways to try
_LONGEST: Final = 1000  # characters of a pattern the server is given to match
_LIKE: Final = str.maketrans({"%": r"\%", "_": r"\_", "\\": r"\\"})
_MOST: Final = 1 << 62
_YES: Final[Sql] = ("true", [])
_NO: Final[Sql] = ("false", [])


def sql(node: Node, now: datetime, *, sure: bool = False) -> Sql:
    """
    What is true of every letter that matches; with `sure`, only of such.

    The two meet in negations: what is not surely so may be otherwise.
    """
    match node:
        case Not(term):
            text, values = sql(term, now, sure=not sure)
            return f"NOT {text}", values
        case All(terms):
            return _joined(" AND ", [sql(term, now, sure=sure) for term in terms], _YES)
        case Any(terms):
            return _joined(" OR ", [sql(term, now, sure=sure) for term in terms], _NO)
        case Word():
            return _maybe(sure)
        case Term():
            if needs_contents(node):
                return _maybe(sure)
            return _condition(condition(node, now), sure=sure)


def numbered(text: str) -> str:
    """A text with its `?` as the server wants them: $1, $2 …"""
    first, *rest = text.split("?")
    return first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))


def bound(value: int | datetime) -> int | datetime:
    """A bound of `Between` as it can be compared."""
    return value if isinstance(value, datetime) else min(max(value, -_MOST), _MOST)


def _maybe(sure: bool) -> Sql:
    return _NO if sure else _YES


def _joined(by: str, parts: list[Sql], empty: Sql) -> Sql:
    if not parts:
        return empty
    text = by.join(part[0] for part in parts)
    return f"({text})", [value for part in parts for value in part[1]]


def _condition(condition: Condition, *, sure: bool) -> Sql:
    if isinstance(condition, Either):
        parts = [_condition(part, sure=sure) for part in condition.conditions]
        return _joined(" OR ", parts, _NO)
    name = condition.attribute
    assert name in _COLUMNS, f"{name} is no column"
    column = f"m.{name}" if name in _MARKED else f"l.{name}"
    match condition:
        case OneOf(_, values):
            return _never_null(f"{column} = ANY(?)", [[*map(stored, values)]])
        case Like():
            return _like(column, condition, sure=sure)
        case Between(_, low, high):
            kind = "timestamptz" if name.endswith("_at") else "bigint"
            ends = [(">=", low), ("<", high)]
            given = [(op, bound(end)) for op, end in ends if end is not None]
            text = " AND ".join(f"{column} {op} ?::{kind}" for op, _ in given)
            return _never_null(text or "true", [end for _, end in given])
        case Present():
            return _never_null(f"{column} <> ''", [])
        case Flagged():
            return column, []


def _like(column: str, like: Like, *, sure: bool) -> Sql:
    text = column
    if like.folded and like.attribute != "error_name":  # which is folded already
        text = f"lower({text})"
    pattern, exact = _pattern(like.pieces)
    if len(like.pieces) == 1:
        test, value = f"{text} = ?", stored(like.pieces[0])
    elif len(pattern) > _LONGEST:
        return _maybe(sure)
    else:
        test, value = f"{text} LIKE ?", pattern
    if not sure:
        return _never_null(f"(strpos({column}, ?) > 0 OR {test})", [MARK, value])
    if not exact:
        return _NO
    return _never_null(f"(strpos({column}, ?) = 0 AND {test})", [MARK, value])


def _pattern(pieces: tuple[str, ...]) -> tuple[str, bool]:
    """A pattern for LIKE, and whether it says all that the pieces say."""
    escaped = [stored(piece).translate(_LIKE) for piece in pieces]
    if len(pieces) <= _PIECES:
        return "%".join(escaped), True
    return "%".join([*escaped[: _PIECES - 1], escaped[-1]]), False


def _never_null(text: str, values: list[Anything]) -> Sql:
    # What is not known to be so is not so, and must stay that way when negated.
    return f"coalesce({text}, false)", values
