"""Values of the newest letters that a search finds, and letters near another one."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.letter import LetterHead
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.query.parse import show
from deadletter.core.redact import redact

COUNTED: Final = 500  # the newest letters of a search
_MOST_VALUES: Final = 12  # of one field


class FacetValue(Struct, frozen=True, kw_only=True):
    """A value of a field, the number of letters that have it, and the search for them."""

    value: str
    count: int
    query: str  # empty if it is masked


class Facet(Struct, frozen=True, kw_only=True):
    """The most frequent values of one field."""

    field: str
    values: tuple[FacetValue, ...]
    others: int = 0  # letters with a value that is not among these


class Facets(Struct, frozen=True):
    """The values of `looked_at` letters, the newest ones of a search."""

    looked_at: int
    facets: tuple[Facet, ...]


_FIELDS: Final[dict[str, tuple[str, Callable[[LetterHead], str]]]] = {
    "error": ("error", lambda head: head.error_name),
    "source": ("source", lambda head: head.source),
    "version": ("version", lambda head: head.version),
    "reason": ("reason", lambda head: head.reason.value),
    "trouble": ("trouble", lambda head: head.trouble.value),
    "consumer": ("consumer", lambda head: head.consumer),
    "state": ("is", lambda head: head.state.value),
}


def count_facets(heads: Sequence[LetterHead]) -> Facets:
    """Return the values of letters by field; fields without any value are left out."""
    found = []
    for name, (field, value) in _FIELDS.items():
        counts = Counter(text for head in heads if (text := value(head)))
        if not counts:
            continue
        values = tuple(
            FacetValue(value=redact(text), count=n, query=term_text(field, text))
            for text, n in counts.most_common(_MOST_VALUES)
        )
        others = counts.total() - sum(one.count for one in values)
        found.append(Facet(field=name, values=values, others=others))
    return Facets(len(heads), tuple(found))


def term_text(field: str, value: str, path: tuple[str, ...] = ()) -> str:
    """Return the search for one value as a person would type it; empty for a masked value."""
    if redact(value) != value:
        return ""
    return show(Term(field, Op.IS, (literal(value),), path))


class Nearby(Struct, frozen=True, kw_only=True):
    """Other letters that share a field with one letter."""

    field: str  # key, trace, message or group
    query: str
    letters: int  # without the letter itself; a lower bound unless `is_all`
    newer: int  # of those, that died later
    is_all: bool = True


MOST_NEARBY: Final = 100  # letters that are counted


def nearby_terms(head: LetterHead) -> dict[str, Sequence[Term]]:
    """Return the searches for letters near one, by the field that they share."""
    source = Term("source", Op.IS, (literal(head.source),))
    values = {
        "key": (head.key, (source,)),
        "trace": (head.trace_id, ()),
        "message": (head.message_id, ()),
        "group": (head.fingerprint, ()),
    }
    return {
        field: (*more, Term(field, Op.IS, (literal(value),)))
        for field, (value, more) in values.items()
        if value
    }


def count_nearby(
    field: str, query: str, head: LetterHead, found: Iterable[LetterHead], *, is_all: bool
) -> Nearby:
    """Count letters near one; `found` are those of the search, newest first."""
    others = [one for one in found if one.id != head.id]
    newer = sum(one.dead_at > head.dead_at for one in others)
    return Nearby(field=field, query=query, letters=len(others), newer=newer, is_all=is_all)
