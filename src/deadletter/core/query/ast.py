"""
A search, as a tree.

The parser makes it from text, `show` turns it back, `matches` judges one letter
by it, and stores compile it to their own language.
"""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct


class Op(StrEnum):
    """How a term compares."""

    IS = ":"
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="


class Term(Struct, frozen=True, tag="term"):
    """
    `field:value`, `field:>value` or `field:[a,b]`.

    `field` is one of `fields.FIELDS`; `path` is what follows `body.` or
    `header.`; several values mean any of them; `*` in a value is a wildcard.
    """

    field: str
    op: Op
    values: tuple[str, ...]
    path: tuple[str, ...] = ()
    at: int = 0  # where in the text it stood, for error messages


class Word(Struct, frozen=True, tag="word"):
    """A free word: found in the error text or the body, whatever its case."""

    text: str
    at: int = 0


class Not(Struct, frozen=True, tag="not"):
    """Everything but."""

    term: "Node"


class All(Struct, frozen=True, tag="all"):
    """Every one of these; of nothing, everything."""

    terms: "tuple[Node, ...]"


class Any(Struct, frozen=True, tag="any"):
    """At least one of these."""

    terms: "tuple[Node, ...]"


Node: TypeAlias = Term | Word | Not | All | Any

EVERYTHING = All(())
