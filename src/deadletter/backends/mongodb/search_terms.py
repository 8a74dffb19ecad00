"""
A search as a filter of the server, as far as the head of a letter can answer it.

What comes out is never too narrow: it may let through letters that do not match
(odd text, everything about contents), but holds back none that do. Whoever uses it
judges what it finds by `core.query`, which has the last word, so that all stores
agree. No value ever becomes an operator, and patterns are quoted sign by sign.
"""

from datetime import datetime
from typing import Final

from deadletter.core.escaping import stored
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

from .schema import Document
from .times import number, place

_YES: Final[Document] = {}
_NO: Final[Document] = {"_id": {"$in": []}}
_FIELDS: Final = {
    "id": "_id",
    "dead_at": "place",
    "first_failed_at": "first_failed",
}
_MOST: Final = 1 << 62
_LONGEST: Final = 5_000  # signs of a pattern the server is given to match


def filtered(node: Node, now: datetime, *, sure: bool = False) -> Document:
    """
    What is true of every letter that matches; with `sure`, only of such.

    The two meet in negations: what is not surely so may be otherwise.
    """
    match node:
        case Not(term):
            return {"$nor": [filtered(term, now, sure=not sure)]}
        case All(terms):
            parts = [filtered(term, now, sure=sure) for term in terms]
            return {"$and": parts} if parts else _YES
        case Any(terms):
            parts = [filtered(term, now, sure=sure) for term in terms]
            return {"$or": parts} if parts else _NO
        case Word():
            return _NO if sure else _YES
        case Term():
            if needs_contents(node):
                return _NO if sure else _YES
            return _condition(condition(node, now), sure=sure)


def field_of(attribute: str) -> str:
    """What an attribute of a head is called in a document."""
    return _FIELDS.get(attribute, attribute)


def literally(text: str) -> str:
    """The regular expression that matches this text and no other."""
    return "".join(map(_sign, stored(text)))


def _condition(condition: Condition, *, sure: bool) -> Document:
    if isinstance(condition, Either):
        parts = [_condition(part, sure=sure) for part in condition.conditions]
        return {"$or": parts} if parts else _NO
    field = field_of(condition.attribute)
    match condition:
        case OneOf(_, values):
            return {field: {"$in": sorted(map(stored, values))}}
        case Like():
            return _like(field, condition, sure=sure)
        case Between(_, low, high):
            ends = {"$gte": low, "$lt": high}
            given = {
                op: _bound(field, end) for op, end in ends.items() if end is not None
            }
            return {field: given} if given else _YES
        case Present():
            return {field: {"$gt": ""}}
        case Flagged():
            return {field: True}


def _bound(field: str, end: int | datetime) -> int | bytes:
    if isinstance(end, datetime):
        return place(end) if field == "place" else number(end)
    return min(max(end, -_MOST), _MOST)


def _like(field: str, like: Like, *, sure: bool) -> Document:
    pattern = _pattern(like.pieces, folded=like.folded)
    if len(pattern) > _LONGEST:
        return _NO if sure else _YES
    test: Document = {field: {"$regex": pattern, "$options": "s"}}
    # An escape sign by sign fits whatever the sign itself fits, and maybe more.
    return {"$and": [test, {"odd": False}]} if sure else test


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
