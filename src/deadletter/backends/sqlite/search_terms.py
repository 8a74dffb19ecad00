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

from .rows import micros
from .sql import stored

Sql: TypeAlias = tuple[str, list[Anything]]

_COLUMNS: Final = frozenset({*LetterHead.__struct_fields__, "error_name"})
_PIECES: Final = 4  # GLOB tries all ways to fit: more stars would be too many
_LONGEST: Final = 1000  # characters of a pattern SQLite is given to match
_GLOB: Final = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})
_YES: Final[Sql] = ("1", [])
_NO: Final[Sql] = ("0", [])


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


def bound(value: int | datetime) -> int:
    """A bound of `Between` as it is stored."""
    return micros(value) if isinstance(value, datetime) else value


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
    column = condition.attribute
    assert column in _COLUMNS, f"{column} is no column"
    match condition:
        case OneOf(_, values):
            marks = ", ".join("?" * len(values))
            return _never_null(f"{column} IN ({marks})", [*map(stored, values)])
        case Like():
            return _like(condition, sure=sure)
        case Between(_, low, high):
            ends = [(">=", low), ("<", high)]
            given = [(op, bound(end)) for op, end in ends if end is not None]
            text = " AND ".join(f"{column} {op} ?" for op, _ in given)
            return _never_null(text or "1", [end for _, end in given])
        case Present():
            return _never_null(f"{column} <> ''", [])
        case Flagged():
            return f"{column}", []


def _like(like: Like, *, sure: bool) -> Sql:
    pieces = [stored(piece) for piece in like.pieces]
    odd = f"typeof({like.attribute}) = 'blob'"
    if any(isinstance(piece, bytes) for piece in pieces):
        return _NO if sure else (odd, [])  # only odd text has odd pieces
    text = like.attribute
    if like.folded and like.attribute != "error_name":  # which is folded already
        text = f"lower({text})"
    pattern, exact = _glob(like.pieces)
    if len(like.pieces) == 1:
        test, value = f"{text} = ?", like.pieces[0]
    elif len(pattern) > _LONGEST:
        return _maybe(sure)
    else:
        test, value = f"{text} GLOB ?", pattern
    if not sure:
        return _never_null(f"({odd} OR {test})", [value])
    if not exact:
        return _NO
    return _never_null(f"(NOT {odd} AND {test})", [value])


def _glob(pieces: tuple[str, ...]) -> tuple[str, bool]:
    """A pattern for GLOB, and whether it says all that the pieces say."""
    escaped = [piece.translate(_GLOB) for piece in pieces]
    if len(pieces) <= _PIECES:
        return "*".join(escaped), True
    return "*".join([*escaped[: _PIECES - 1], escaped[-1]]), False


def _never_null(text: str, values: list[Anything]) -> Sql:
    # What is not known to be so is not so, and must stay that way when negated.
    return f"ifnull({text}, 0)", values
