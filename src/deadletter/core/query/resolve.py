"""
Relative times made absolute.

Done once when an action starts, so that what a replay selects is frozen: the
answer no longer depends on when it is asked.
"""

from datetime import datetime
from typing import Final

from .ast import All, Any, Node, Not, Op, Term, Word
from .values import before, duration, instant

_TURNED: Final = {Op.GT: Op.LT, Op.GE: Op.LE, Op.LT: Op.GT, Op.LE: Op.GE}


def resolve(node: Node, now: datetime) -> Node:
    """The same search as of `now`, whenever it is run: `age:>1d` is `dead:<…`."""
    match node:
        case Term():
            return absolute(node, now)
        case Not(term):
            return Not(resolve(term, now))
        case All(terms):
            return All(tuple(resolve(term, now) for term in terms))
        case Any(terms):
            return Any(tuple(resolve(term, now) for term in terms))
        case Word():
            return node


def absolute(term: Term, now: datetime) -> Term:
    """The term, as one about the time of death if it is about a span until now."""
    match term.field:
        case "age":
            op = _TURNED[term.op]
        case "since":
            op = Op.GE
        case "until":
            op = Op.LE
        case _:
            return term
    values = tuple(_then(value, now) for value in term.values)
    return Term("dead", op, values, at=term.at)


def _then(value: str, now: datetime) -> str:
    how_long = duration(value)
    return value if how_long is None else instant(before(now, how_long))
