"""
Resolution of searches: relative times, versions, outages, and rights.

Relative times are made absolute once, when an action starts, so that the letters that a replay
selects do not depend on when the search runs.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from deadletter.core.brake import BrakeKind, BrakeWindow, WindowState, merged
from deadletter.core.errors import QueryError
from deadletter.core.query.versions import Seen, compare, has_own_order
from deadletter.core.redact import is_secret_name

from .ast import All, Any, Node, Not, Op, Term, Word, leaves
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


# Outages, turned into spans of time.
#
# `during:any` means every letter that died while its mailbox was held back. A store replaces
# the term with the mailboxes and times of its brake windows before it searches.

MOST_OUTAGES: Final = 200
"""The most outages that one term may stand for."""
LOOKED_AT: Final = 2_000
"""The latest brake windows, from which outages are found."""


def names_outages(node: Node) -> bool:
    """Return whether a search has a term about outages, `during:…`."""
    return any(isinstance(one, Term) and one.field == "during" for one in leaves(node))


def with_outages(node: Node, windows: Iterable[BrakeWindow], now: datetime) -> Node:
    """Return the search with terms about outages replaced by mailboxes and spans of time."""
    known = tuple(windows)
    shown = merged(known)

    def replaced(part: Node) -> Node:
        match part:
            case Term("during"):
                return _spans_of(part, shown, known, now)
            case Not(term):
                return Not(replaced(term))
            case All(terms):
                return All(tuple(map(replaced, terms)))
            case Any(terms):
                return Any(tuple(map(replaced, terms)))
        return part

    return replaced(node)


def _spans_of(
    term: Term, shown: Sequence[BrakeWindow], known: Sequence[BrakeWindow], now: datetime
) -> Node:
    found: dict[str, BrakeWindow] = {}
    for value in term.values:
        named = _outages_called(value, shown) or _outages_called(value, known)
        if not named and value not in _ANY_OUTAGE:
            raise QueryError(
                f"there is no outage {value[:40]}; `dlq outages --json` shows their ids", at=term.at
            )
        found |= {one.id: one for one in named}
    if len(found) > MOST_OUTAGES:
        raise QueryError(
            f"during: would stand for {len(found):,} outages, and {MOST_OUTAGES} is the limit:"
            " name them by their ids, or search for a span of time",
            at=term.at,
        )
    by_mailbox: defaultdict[str, list[Node]] = defaultdict(list)
    for one in found.values():
        by_mailbox[one.mailbox].append(_span(one, term.at, now))
    arms: tuple[Node, ...] = tuple(
        All((Term("source", Op.IS, (literal(mailbox),), at=term.at), _either(spans)))
        for mailbox, spans in by_mailbox.items()
    )
    return _either(arms)


_ANY_OUTAGE: Final = frozenset({"any", *BrakeKind})


def _outages_called(value: str, windows: Iterable[BrakeWindow]) -> list[BrakeWindow]:
    if value in _ANY_OUTAGE:
        return [one for one in windows if value in {"any", one.kind}]
    return [one for one in windows if one.id.startswith(value)]


def _span(window: BrakeWindow, at: int, now: datetime) -> Node:
    begin = Term("dead", Op.GE, (instant(window.opened_at),), at=at)
    if window.state(now) is WindowState.OPEN:
        return begin
    return All((begin, Term("dead", Op.LT, (instant(window.until),), at=at)))


def _either(nodes: Sequence[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Any(tuple(nodes))


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
