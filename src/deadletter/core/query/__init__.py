"""The search language: text to a tree, and letters judged by it."""

from .ast import EVERYTHING, All, Any, Node, Not, Op, Term, Word, same
from .budget import STEP, Budget, Meter
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
from .free_text import first_word
from .match import matcher, matches, term_matches_head
from .parse import parse
from .pattern import fits, fold, literal, pieces
from .plan import is_costly, needs_contents, split, weight
from .resolve import resolve
from .sealed import sealed
from .show import show
from .values import instant
from .version_order import MOST_VERSIONS, compares_versions, with_versions

__all__ = [
    "EVERYTHING",
    "FIELDS",
    "MOST_VERSIONS",
    "STEP",
    "All",
    "Any",
    "Between",
    "Budget",
    "Condition",
    "Either",
    "Field",
    "Flagged",
    "Kind",
    "Like",
    "Meter",
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
    "compares_versions",
    "condition",
    "first_word",
    "fits",
    "fold",
    "header_matches",
    "holds",
    "instant",
    "is_costly",
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
    "weight",
    "with_versions",
    "word_matches",
]
