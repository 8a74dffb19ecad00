"""
Error texts and bodies by three characters at a time, for stores that index them.

An index only says which letters may match: a text that holds a pattern also holds all
trigrams of it. Whether it holds the pattern is for `matcher` to say.
"""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from .ast import All, Any, Node, Not, Term, Word
from .fields import FIELDS, Way, fold, pieces

_LENGTH: Final = 3
_MOST: Final = 16  # of one pattern: more would hardly tell more apart
_SURROGATE: Final = re.compile("[\ud800-\udfff]")  # not in any text of a body


def trigrams(text: str) -> list[str]:
    """Each three characters in a row that a text has, small, each once."""
    small = fold(text)
    last = len(small) - _LENGTH + 1
    return list(dict.fromkeys(small[at : at + _LENGTH] for at in range(last)))


class Hint(Struct, frozen=True):
    """Trigrams that a text has, all of them: an error text, or a body."""

    grams: tuple[str, ...]
    in_body: bool = False


def hints(query: Node, *, bodies: bool = False) -> list[Hint] | None:
    """
    Return what the texts of every letter have that fulfils a search.

    At least one of these hints is true of it. None if that cannot be told, as of a
    word in a body unless `bodies` are indexed.
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

    Bytes that are not UTF-8 are replaced. A word that the body holds is in the text.
    """
    return body.decode("utf-8", "replace")


def _known(found: Iterable[Hint]) -> list[Hint] | None:
    several = list(dict.fromkeys(found))
    return several if all(one.grams for one in several) else None


def _some(parts: Iterable[str]) -> tuple[str, ...]:
    """Some trigrams of a pattern, spread over it; those of its longest parts first."""
    longest_first = sorted(parts, key=len, reverse=True)
    grams = [gram for part in longest_first for gram in trigrams(part)]
    found = list(dict.fromkeys(grams))
    return tuple(found[:: max(1, -(-len(found) // _MOST))])
