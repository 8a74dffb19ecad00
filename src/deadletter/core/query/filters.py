"""
Searches as filters of a store: one walk over the tree, with a dialect for each store.

A filter is never too narrow: it may pass letters that do not match (odd text, patterns with
many stars, everything about contents), but holds back none that do. `matcher` then decides on
each letter, so that all stores agree.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from .ast import All, Any, Node, Not, Term, Word
from .fields import FIELDS, Way, fold, pieces
from .match import (
    Between,
    Condition,
    Either,
    Flagged,
    Like,
    OneOf,
    Present,
    condition,
    needs_contents,
)

F = TypeVar("F")

MOST_ARMS: Final = 8  # a term of more values than this does not lead
MOST_SORTED: Final = 1_000  # letters that may have to be sorted


class FilterDialect(Protocol[F]):
    """The language of a store for the parts of a filter."""

    @property
    def everything(self) -> F:
        """Return a filter that passes every letter."""

    @property
    def nothing(self) -> F:
        """Return a filter that passes no letter."""

    def negated(self, part: F) -> F:
        """Return the opposite of a filter."""

    def all_of(self, parts: Sequence[F]) -> F:
        """Join at least one filter by AND."""

    def any_of(self, parts: Sequence[F]) -> F:
        """Join at least one filter by OR."""

    def one_of(self, attribute: str, values: Collection[str]) -> F:
        """Compare an attribute with values."""

    def like(self, like: Like, *, sure: bool) -> F:
        """Compare an attribute with a pattern; with `sure`, leave out doubtful letters."""

    def between(self, attribute: str, low: int | datetime | None, high: int | datetime | None) -> F:
        """Compare an attribute with a range from `low` to before `high`."""

    def present(self, attribute: str) -> F:
        """Require a value that is not empty."""

    def flagged(self, attribute: str) -> F:
        """Require a flag."""


def filter_of(node: Node, now: datetime, dialect: FilterDialect[F], *, sure: bool = False) -> F:
    """
    Return a filter that passes every letter that matches; with `sure`, only such.

    The two alternate in negations.
    """
    match node:
        case Not(term):
            return dialect.negated(filter_of(term, now, dialect, sure=not sure))
        case All(terms):
            parts = [filter_of(term, now, dialect, sure=sure) for term in terms]
            return dialect.all_of(parts) if parts else dialect.everything
        case Any(terms):
            parts = [filter_of(term, now, dialect, sure=sure) for term in terms]
            return dialect.any_of(parts) if parts else dialect.nothing
        case Term() if not needs_contents(node):
            return _condition(condition(node, now), dialect, sure=sure)
        case Term() | Word():
            return dialect.nothing if sure else dialect.everything


def _condition(asked: Condition, dialect: FilterDialect[F], *, sure: bool) -> F:
    match asked:
        case Either(conditions):
            parts = [_condition(part, dialect, sure=sure) for part in conditions]
            return dialect.any_of(parts) if parts else dialect.nothing
        case OneOf(attribute, values):
            return dialect.one_of(attribute, values)
        case Like():
            return dialect.like(asked, sure=sure)
        case Between(attribute, low, high):
            return dialect.between(attribute, low, high)
        case Present(attribute):
            return dialect.present(attribute)
        case Flagged(attribute):
            return dialect.flagged(attribute)


class Lead(Struct, Generic[F], frozen=True):
    """Ranges of one index that hold all letters that a term finds."""

    index: str
    arms: tuple[F, ...]
    in_order: bool = True  # False: all of them are sorted to get the newest
    is_exact: bool = True  # they hold only letters of the term


class IndexDialect(Protocol[F]):
    """The indexes of a store, each ordered by value and then by death."""

    @property
    def every_letter(self) -> Lead[F]:
        """The index of all letters, newest death first."""

    @property
    def indexed(self) -> Collection[str]:
        """The attributes that have an index."""

    def by_values(self, attribute: str, values: Sequence[str]) -> Lead[F] | None:
        """Return the letters of a few values."""

    def by_prefix(self, attribute: str, prefix: str) -> Lead[F] | None:
        """Return the letters whose value begins like this."""

    def by_ids(self, ids: Collection[str]) -> Lead[F] | None:
        """Return the letters of many ids."""


class Leads(Struct, Generic[F], frozen=True):
    """The indexes that can lead a search, and the times that bound it."""

    leads: tuple[Lead[F], ...]
    low: datetime | None
    high: datetime | None
    is_exact: bool  # the only lead holds only letters of the search


def leads_of(conjuncts: Iterable[Node], now: datetime, dialect: IndexDialect[F]) -> Leads[F]:
    """Return leads that each hold every letter that fulfils all of these; one is in order."""
    lows: list[datetime] = []
    highs: list[datetime] = []
    leads: list[Lead[F]] = []
    is_exact = True
    for node in conjuncts:
        asked = condition(node, now) if isinstance(node, Term) else None
        if isinstance(asked, Between) and asked.attribute == "dead_at":
            lows += [asked.low] if isinstance(asked.low, datetime) else []
            highs += [asked.high] if isinstance(asked.high, datetime) else []
            continue
        lead = None if asked is None else _lead(asked, dialect)
        if lead is not None:
            leads.append(lead)
        is_exact &= isinstance(asked, OneOf) and lead is not None and lead.is_exact
    is_exact &= len(leads) <= 1
    if not any(lead.in_order for lead in leads):
        is_exact = is_exact and not leads
        leads.append(dialect.every_letter)
    return Leads(tuple(leads), max(lows, default=None), min(highs, default=None), is_exact)


def _lead(asked: Condition, dialect: IndexDialect[F]) -> Lead[F] | None:
    match asked:
        case OneOf("id", values) if MOST_ARMS < len(values) <= MOST_SORTED:
            # Each is one letter, so sorting them takes no time.
            return dialect.by_ids(values)
        case OneOf(attribute, values):
            return _by_values(attribute, values, dialect)
        case Like(attribute, (first, _, *_), False) if attribute in dialect.indexed:
            # The end of the range is found by counting the last character up.
            if first and first[-1].isascii() and first[-1] != "\x7f":
                return dialect.by_prefix(attribute, first)
        case Either(conditions):
            return _by_names(conditions, dialect)
    return None


def _by_values(attribute: str, values: Collection[str], dialect: IndexDialect[F]) -> Lead[F] | None:
    found = sorted(set(values))
    if attribute not in dialect.indexed or not 0 < len(found) <= MOST_ARMS:
        return None
    return dialect.by_values(attribute, found)


def _by_names(conditions: Sequence[Condition], dialect: IndexDialect[F]) -> Lead[F] | None:
    # The whole name of an error or its end: what follows the last dot is the
    # same in both, and has an index.
    names: set[str] = set()
    for asked in conditions:
        match asked:
            case Like("error_type" | "error_name", (name,), True):
                names.add(name.rpartition(".")[2])
            case _:
                return None
    return _by_values("error_name", names, dialect)


_LENGTH: Final = 3
_MOST: Final = 16  # of one pattern; more hardly help
_SURROGATE: Final = re.compile("[\ud800-\udfff]")  # not in any text of a body


def trigrams(text: str) -> list[str]:
    """Return the distinct sequences of three characters in a text, in lower case."""
    small = fold(text)
    last = len(small) - _LENGTH + 1
    return list(dict.fromkeys(small[at : at + _LENGTH] for at in range(last)))


class Hint(Struct, frozen=True):
    """Trigrams that an error text or a body must all have."""

    grams: tuple[str, ...]
    in_body: bool = False


def hints(query: Node, *, bodies: bool = False) -> list[Hint] | None:
    """
    Return hints of which at least one is true of every letter that matches a search.

    None if that is unknown, as for a word in a body unless `bodies` are indexed.
    """
    match query:
        case Term() if FIELDS[query.field].way is Way.WITHIN:
            return _known(Hint(_some(pieces(value))) for value in query.values)
        case Word(text) if bodies and not _SURROGATE.search(text):
            grams = _some(pieces(text))
            return _known([Hint(grams), Hint(grams, in_body=True)])
        case All(terms):
            several = [found for term in terms if (found := hints(term, bodies=bodies))]
            return min(several, key=len, default=None)
        case Any(terms) if terms:
            parts = [hints(term, bodies=bodies) for term in terms]
            if None not in parts:
                return _known(one for part in parts for one in part or ())
        case Not(Not(term)):
            return hints(term, bodies=bodies)
    return None


def body_text(body: bytes) -> str:
    """
    Return a body as text whose trigrams can be indexed.

    Bytes that are not UTF-8 are replaced. A word in the body is also in the text.
    """
    return body.decode("utf-8", "replace")


def _known(found: Iterable[Hint]) -> list[Hint] | None:
    several = list(dict.fromkeys(found))
    return several if all(one.grams for one in several) else None


def _some(parts: Iterable[str]) -> tuple[str, ...]:
    """Return some trigrams of a pattern, spread over it; those of its longest parts first."""
    longest_first = sorted(parts, key=len, reverse=True)
    grams = [gram for part in longest_first for gram in trigrams(part)]
    found = list(dict.fromkeys(grams))
    return tuple(found[:: max(1, -(-len(found) // _MOST))])
