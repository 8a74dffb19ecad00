"""The search language: text to a tree, and letters judged by it."""

from .ast import EVERYTHING, All, Any, Node, Not, Op, Term, Word, same
from .conditions import (
    Between,
    Condition,
    Either,
    Flagged,
    Like,
    OneOf,
    Present,
    condition,
    holds,
)
from .contents import body_matches, body_value, header_matches, word_matches
from .fields import FIELDS, Field, Kind, Way
from .match import matcher, matches, term_matches_head
from .parse import parse
from .pattern import fits, fold, literal, pieces
from .plan import needs_contents, split
from .resolve import resolve
from .sealed import sealed
from .show import show
from .values import instant

__all__ = [
    "EVERYTHING",
    "FIELDS",
    "All",
    "Any",
    "Between",
    "Condition",
    "Either",
    "Field",
    "Flagged",
    "Kind",
    "Like",
    "Node",
    "Not",
    "OneOf",
    "Op",
    "Present",
    "Term",
    "Way",
    "Word",
    "body_matches",
    "body_value",
    "condition",
    "fits",
    "fold",
    "header_matches",
    "holds",
    "instant",
    "literal",
    "matcher",
    "matches",
    "needs_contents",
    "parse",
    "pieces",
    "resolve",
    "same",
    "sealed",
    "show",
    "split",
    "term_matches_head",
    "word_matches",
]
