"""
Resolution of searches: relative times, versions, and rights.

Relative times are made absolute once, when an action starts, so that the letters that a replay
selects do not depend on when the search runs.
"""

from collections import defaultdict
from datetime import datetime
from typing import Final

from deadletter.core.errors import QueryError
from deadletter.core.query.versions import Seen, compare, has_own_order
from deadletter.core.redact import is_secret_name

from .ast import All, Any, Node, Not, Op, Term, Word
from .fields import before, duration, instant, literal, pieces

_TURNED: Final = {Op.GT: Op.LT, Op.GE: Op.LE, Op.LT: Op.GT, Op.LE: Op.GE}


def resolve(node: Node, now: datetime) -> Node:
    """Return the same search as of `now`: `age:>1d` becomes `dead:<…`."""
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
    """Return the term with a span until now as a term about the time of death."""
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


# Comparisons of versions, turned into lists of versions.
#
# `version:<1.8` means every version that is known to be older, see `versions`. A store
# replaces the comparison with the names of its versions before it searches.

MOST_VERSIONS: Final = 10_000
"""The most versions that a comparison looks at; it raises for an office with more."""

_SIGNS: Final = {Op.GT: (1,), Op.GE: (0, 1), Op.LT: (-1,), Op.LE: (-1, 0)}


def compares_versions(node: Node) -> bool:
    """Return whether a search compares versions, as in `version:<…`."""
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

    `seen` has all versions of the office, at most one more than `MOST_VERSIONS`.
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


# Searches of callers to whom secrets are shown masked.
#
# A caller who may search `body.token:a*`, then `body.token:b*`, can find out the token.
# So they cannot search by a name whose value is masked, and their words are searched in
# error texts, which hold no secrets, but not in bodies.


def sealed(node: Node, query: str) -> Node:
    """Return the search for callers without the right to see secrets; `query` is its text."""
    match node:
        case Term(path=path) if any(map(is_secret_name, path)):
            name = ".".join((node.field, *path))
            raise QueryError(
                f"{name} is masked for you, and so cannot be searched for", query=query, at=node.at
            )
        case Word(text, at):
            return Term("text", Op.IS, (text,), at=at)
        case Not(term):
            return Not(sealed(term, query))
        case All(terms):
            return All(tuple(sealed(term, query) for term in terms))
        case Any(terms):
            return Any(tuple(sealed(term, query) for term in terms))
        case Term():
            return node
