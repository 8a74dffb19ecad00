"""
A search, as a tree.

The parser makes it from text, `show` turns it back, `matches` judges one letter
by it, and stores compile it to their own language.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace


class Op(StrEnum):
    """The comparison operators of a term."""

    IS = ":"
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="


class Term(Struct, frozen=True, tag="term"):
    r"""
    `field:value`, `field:>value` or `field:[a,b]`.

    `field` is one of `fields.FIELDS`. `path` follows `body.` or `header.`. Several values mean
    any of them. Values of text are patterns: `*` matches any text, `\*` and `\\` are literal
    (see `pattern`). Other values are in the one form of `fields.written`.
    """

    field: str
    op: Op
    values: tuple[str, ...]
    path: tuple[str, ...] = ()
    at: int = 0  # where in the text it stood, for error messages


class Word(Struct, frozen=True, tag="word"):
    """
    A free word in the error text or the body, in any case.

    Its text is a pattern, like the values of a term.
    """

    text: str
    at: int = 0


class Not(Struct, frozen=True, tag="not"):
    """Negation."""

    term: "Node"


class All(Struct, frozen=True, tag="all"):
    """Conjunction; without parts, it matches everything."""

    terms: "tuple[Node, ...]"


class Any(Struct, frozen=True, tag="any"):
    """Disjunction; without parts, it matches nothing."""

    terms: "tuple[Node, ...]"


Node: TypeAlias = Term | Word | Not | All | Any

EVERYTHING: Final = All(())


def leaves(node: Node) -> Iterator[Term | Word]:
    """Return the terms and words of a search, from left to right."""
    match node:
        case Term() | Word():
            yield node
        case Not(term):
            yield from leaves(term)
        case All(terms) | Any(terms):
            for one in terms:
                yield from leaves(one)


def same(one: Node, other: Node) -> bool:
    """Return whether two searches are equal, apart from the positions of their terms."""
    return _unplaced(one) == _unplaced(other)


def _unplaced(node: Node) -> Node:
    match node:
        case Term() | Word():
            return replace(node, at=0)
        case Not(term):
            return Not(_unplaced(term))
        case All(terms):
            return All(tuple(map(_unplaced, terms)))
        case Any(terms):
            return Any(tuple(map(_unplaced, terms)))
