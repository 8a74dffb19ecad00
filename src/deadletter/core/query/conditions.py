"""
What terms ask of a letter's head, in words any store can say.

A term is lowered to a handful of conditions. `holds` judges a head by them, and
a store turns each into its own language, so that both mean the same. A missing
value (None) fulfils no condition.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, TypeAlias

from msgspec import Struct

from deadletter.core.failure import Trouble
from deadletter.core.letter import OPEN, LetterHead

from .ast import Op, Term
from .fields import FIELDS, Field, Kind, Way
from .pattern import Pieces, fits, fold, pieces
from .resolve import absolute
from .values import time_span


class OneOf(Struct, frozen=True):
    """The attribute is one of these texts, exactly."""

    attribute: str
    values: frozenset[str]


class Like(Struct, frozen=True):
    """
    The attribute's whole text fits the pieces: any text between each two.

    With `folded` the pieces are lower case already and A to Z of the
    attribute count as a to z.
    """

    attribute: str
    pieces: Pieces
    folded: bool = False


class Between(Struct, frozen=True):
    """The attribute is at least `low` and less than `high`, where given."""

    attribute: str
    low: int | datetime | None = None
    high: int | datetime | None = None


class Present(Struct, frozen=True):
    """The attribute is a text, and not an empty one."""

    attribute: str


class Flagged(Struct, frozen=True):
    """The attribute is true."""

    attribute: str


class Either(Struct, frozen=True):
    """At least one of these holds."""

    conditions: "tuple[Condition, ...]"


Condition: TypeAlias = OneOf | Like | Between | Present | Flagged | Either

HAS_ON_HEAD: Final[dict[str, Condition]] = {
    "trace": Present("trace_id"),
    "key": Present("key"),
    "idempotency_key": Present("business_key"),
    "replays": Between("replays", low=1),
}


def condition(term: Term, now: datetime) -> Condition:
    """What a term that needs no contents asks of a head (see `plan`)."""
    term = absolute(term, now)
    field = FIELDS[term.field]
    match field.kind:
        case Kind.TEXT if term.op is Op.IS:  # others: see `version_order`
            return _text(field, term.values)
        case Kind.NUMBER:
            return _either(
                _range(field, term.op, int(value), int(value) + 1)
                for value in term.values
            )
        case Kind.TIME:
            return _either(
                _range(field, term.op, *time_span(value)) for value in term.values
            )
        case Kind.ENUM:
            return _choice(field, term.values)
        case Kind.FLAG:
            return _either(HAS_ON_HEAD[value] for value in term.values)
    raise AssertionError(f"{field.name} cannot be decided by a head")


def holds(condition: Condition, head: LetterHead) -> bool:
    """Whether a head fulfils a condition."""
    if isinstance(condition, Either):
        return any(holds(part, head) for part in condition.conditions)
    value: Any = getattr(head, condition.attribute)
    match condition:
        case OneOf(_, values):
            return value in values
        case Like(_, parts, folded):
            return value is not None and fits(parts, fold(value) if folded else value)
        case Between(_, low, high):
            return (low is None or value >= low) and (high is None or value < high)
        case Present() | Flagged():
            return bool(value)


def _either(conditions: Iterable[Condition]) -> Condition:
    found = tuple(conditions)
    return found[0] if len(found) == 1 else Either(found)


def _text(field: Field, values: tuple[str, ...]) -> Condition:
    found: list[Condition] = []
    exact: set[str] = set()
    for parts in map(pieces, values):
        if field.way is Way.EXACT and len(parts) == 1:
            exact.add(parts[0])
        else:
            found += _likes(field, parts)
    if exact:
        found.append(OneOf(field.attribute, frozenset(exact)))
    return _either(found)


def _likes(field: Field, parts: Pieces) -> list[Condition]:
    if field.way is Way.EXACT:
        return [Like(field.attribute, parts)]
    parts = tuple(map(fold, parts))
    match field.way:
        case Way.FOLDED:
            return [Like(field.attribute, parts, folded=True)]
        case Way.WITHIN:
            return [Like(field.attribute, ("", *parts, ""), folded=True)]
        case Way.NAME:
            names = (field.attribute, "error_name")
            return [Like(name, parts, folded=True) for name in names]


def _choice(field: Field, values: tuple[str, ...]) -> Condition:
    if field.name == "category":
        troubles = frozenset(t.value for t in Trouble if t.category in values)
        return OneOf("trouble", troubles)
    if field.name != "is":
        return OneOf(field.attribute, frozenset(values))
    states = frozenset(values) - {"open", "conflict"}
    if "open" in values:
        states |= {state.value for state in OPEN}
    found: list[Condition] = [OneOf("state", states)] if states else []
    if "conflict" in values:
        found.append(Flagged("conflict"))
    return _either(found)


def _range(field: Field, op: Op, low: int | datetime, high: int | datetime) -> Between:
    match op:
        case Op.IS:
            return Between(field.attribute, low, high)
        case Op.GT:
            return Between(field.attribute, low=high)
        case Op.GE:
            return Between(field.attribute, low=low)
        case Op.LT:
            return Between(field.attribute, high=low)
        case Op.LE:
            return Between(field.attribute, high=high)
