"""
Error texts by three characters at a time, for stores that index them.

An index only says which letters may match: a text that holds a pattern also holds all
trigrams of it. Whether it holds the pattern is for `matcher` to say.
"""

from collections.abc import Iterable
from typing import Final

from .ast import Node, Term
from .fields import FIELDS, Way
from .pattern import fold, pieces

_LENGTH: Final = 3
_MOST: Final = 16  # of one pattern: more would hardly tell more apart


def trigrams(text: str) -> list[str]:
    """Each three characters in a row that a text has, small, each once."""
    small = fold(text)
    last = len(small) - _LENGTH + 1
    return list(dict.fromkeys(small[at : at + _LENGTH] for at in range(last)))


def text_trigrams(conjuncts: Iterable[Node]) -> list[list[str]] | None:
    """
    What the error text of every letter has that fulfils all of these.

    All trigrams of one of the lists; None if that cannot be told by any term.
    """
    found: list[list[list[str]]] = []
    for node in conjuncts:
        if isinstance(node, Term) and FIELDS[node.field].way is Way.WITHIN:
            patterns = [_some(pieces(value)) for value in node.values]
            if all(patterns):
                found.append(patterns)
    return min(found, key=len, default=None)


def _some(parts: Iterable[str]) -> list[str]:
    """Some trigrams of a pattern, spread over it; those of its longest parts first."""
    longest_first = sorted(parts, key=len, reverse=True)
    grams = [gram for part in longest_first for gram in trigrams(part)]
    found = list(dict.fromkeys(grams))
    return found[:: max(1, -(-len(found) // _MOST))]
