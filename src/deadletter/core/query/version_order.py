"""
Comparisons of versions, turned into lists of versions.

`version:<1.8` means every version that is known to be older, see `core.versions`.
A store knows which versions its letters have, so it replaces the comparison with
their names before it searches.
"""

from collections import defaultdict
from typing import Final

from deadletter.core.errors import QueryError
from deadletter.core.versions import Seen, compare, has_own_order

from .ast import All, Any, Node, Not, Op, Term
from .pattern import literal, pieces

MOST_VERSIONS: Final = 10_000
"""Versions that a comparison looks at; an office with more refuses it."""

_SIGNS: Final = {Op.GT: (1,), Op.GE: (0, 1), Op.LT: (-1,), Op.LE: (-1, 0)}


def compares_versions(node: Node) -> bool:
    """Return whether a search has `version:<…` or the like in it."""
    match node:
        case Term(field, op):
            return field == "version" and op is not Op.IS
        case Not(term):
            return compares_versions(term)
        case All(terms) | Any(terms):
            return any(map(compares_versions, terms))
    return False


def with_versions(node: Node, seen: Seen) -> Node:
    """
    Return the search with comparisons of versions replaced by the versions' names.

    `seen` are all versions of the office, one more than `MOST_VERSIONS` at most.
    """
    match node:
        case Term(field, op) if field == "version" and op is not Op.IS:
            return _named(node, seen)
        case Not(term):
            return Not(with_versions(term, seen))
        case All(terms):
            return All(tuple(with_versions(term, seen) for term in terms))
        case Any(terms):
            return Any(tuple(with_versions(term, seen) for term in terms))
    return node


def _named(term: Term, seen: Seen) -> Node:
    version = pieces(term.values[0])[0]
    _check(term, version, seen)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for source, one in seen:
        if compare(one, version, source, seen) in _SIGNS[term.op]:
            found[source].append(one)
    return Any(
        tuple(
            All(
                (
                    Term("source", Op.IS, (literal(source),), at=term.at),
                    Term("version", Op.IS, tuple(map(literal, names)), at=term.at),
                )
            )
            for source, names in found.items()
        )
    )


def _check(term: Term, version: str, seen: Seen) -> None:
    if len(seen) > MOST_VERSIONS:
        raise QueryError(
            f"version:{term.op}{version} would compare more than {MOST_VERSIONS:,}"
            " versions; name the versions instead, like version:[1.7.0,1.7.1]",
            at=term.at,
        )
    if not has_own_order(version) and all(version != one for _, one in seen):
        raise QueryError(
            f"version {version[:80]} has never been seen here, and it is neither a"
            " release number nor a date: nothing is known to be older or newer."
            " Use a version that letters have, like version:<1.8",
            at=term.at,
        )
