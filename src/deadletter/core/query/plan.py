"""
What a store can decide by its columns, and what takes the whole letter.

A store turns the first part into its own language (see `conditions`) and judges
what that finds by the rest, with `matcher`.
"""

from collections.abc import Iterator
from typing import Final

from .ast import EVERYTHING, All, Any, Node, Not, Term, Word
from .contents import HAS_IN_MESSAGE
from .fields import FIELDS, Kind, Way

_LONG_TEXT: Final = 10  # what looking through an error's text costs


def needs_contents(node: Node) -> bool:
    """Whether more than a letter's head is needed to judge it."""
    match node:
        case Word():
            return True
        case Term():
            return FIELDS[node.field].kind is Kind.PATH or (
                node.field == "has"
                and not HAS_IN_MESSAGE.keys().isdisjoint(node.values)
            )
        case Not(term):
            return needs_contents(term)
        case All(terms) | Any(terms):
            return any(map(needs_contents, terms))


def weight(node: Node) -> int:
    """What trying its patterns on one head costs, one being a comparison of names."""
    match node:
        case Term():
            field = FIELDS[node.field]
            if field.kind is not Kind.TEXT:
                return 0
            if field.way is Way.EXACT:
                return sum("*" in value for value in node.values)
            return len(node.values) * (_LONG_TEXT if field.way is Way.WITHIN else 1)
        case Not(term):
            return weight(term)
        case All(terms) | Any(terms):
            return sum(map(weight, terms))
        case Word():
            return 0


def is_costly(node: Node) -> bool:
    """Whether letters have to be read or tried one by one, so that others go first."""
    return needs_contents(node) or weight(node) >= _LONG_TEXT


def split(node: Node) -> tuple[tuple[Node, ...], Node]:
    """
    What heads can decide, and the rest.

    A letter matches if it matches every node of the first and the second.
    """
    by_head: list[Node] = []
    rest: list[Node] = []
    for part in _conjuncts(node):
        (rest if needs_contents(part) else by_head).append(part)
    match rest:
        case []:
            return tuple(by_head), EVERYTHING
        case [only]:
            return tuple(by_head), only
    return tuple(by_head), All(tuple(rest))


def _conjuncts(node: Node) -> Iterator[Node]:
    match node:
        case All(terms):
            for term in terms:
                yield from _conjuncts(term)
        case Not(Not(term)):
            yield from _conjuncts(term)
        case Not(Any(terms)):  # none of them: not this one, and not that one
            for term in terms:
                yield from _conjuncts(Not(term))
        case _:
            yield node
