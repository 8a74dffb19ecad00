"""
A tree back to text.

Parsing what `show` wrote gives the same tree again, wherever the tree came
from a text; a tree made by hand comes back as one that finds the same letters.
"""

import re
from typing import Final

from .ast import All, Any, Node, Not, Op, Term, Word
from .fields import pattern, pieces

_UNTYPED: Final = re.compile("[\0\ud800-\udfff]")


def show(node: Node) -> str:
    """The search as a person would type it; everything is no text at all."""
    return "" if node == All(()) else _shown(node)


def _shown(node: Node) -> str:
    match node:
        case Term():
            return _term(node)
        case Word(text):
            return _word(text)
        case Not(term):
            return f"!{_tight(term)}"
        case All(()):
            return "*"
        case Any(()):
            return "!*"
        case All((only,)) | Any((only,)):
            return _shown(only)
        case All(terms):
            return " ".join(map(_tight, terms))
        case Any(terms):
            return " OR ".join(map(_loose, terms))


def _tight(node: Node) -> str:
    """In brackets, if it would fall apart without."""
    match node:
        case All((_, _, *_)) | Any((_, _, *_)):
            return f"({_shown(node)})"
        case All((only,)) | Any((only,)):
            return _tight(only)
    return _shown(node)


def _loose(node: Node) -> str:
    """In brackets, if it would fall apart between ORs: AND binds tighter."""
    match node:
        case Any((_, _, *_)):
            return f"({_shown(node)})"
        case All((only,)) | Any((only,)):
            return _loose(only)
    return _shown(node)


def _term(term: Term) -> str:
    name = ".".join([term.field, *(_part(term, part) for part in term.path)])
    op = "" if term.op is Op.IS else term.op
    values = [_value(value) for value in term.values]
    shown = values[0] if len(values) == 1 else f"[{','.join(values)}]"
    return f"{name}:{op}{shown}"


def _part(term: Term, part: str) -> str:
    # A header's name is one name, dots and all; a body's dots go a step deeper.
    plain = "_-." if term.field == "header" else "_-"
    dotted = part.startswith(".") or part.endswith(".") or ".." in part
    if part and not dotted and all(c.isalnum() or c in plain for c in part):
        return part
    return _quoted(pattern((part,)))


def _word(text: str) -> str:
    tidy = pattern(pieces(text))
    if ":" in tidy or tidy.upper() in {"AND", "OR", "NOT"}:
        return _quoted(tidy)
    return _value(tidy)


def _value(text: str) -> str:
    tidy = pattern(pieces(text))
    if tidy and all(c.isalnum() or c in r"_-.@/+:*\\" for c in tidy):
        return tidy
    return _quoted(tidy)


def _quoted(tidy: str) -> str:
    escaped = _UNTYPED.sub(_code, tidy.replace('"', '\\"'))
    return f'"{escaped}"'


def _code(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


# Free words in a search: text that may stand anywhere in a letter.


def first_word(node: Node) -> Word | None:
    """Return the first free word of a search, None if all of it names fields."""
    match node:
        case Word():
            return node
        case Term():
            return None
        case Not(term):
            return first_word(term)
        case All(terms) | Any(terms):
            found = (first_word(term) for term in terms)
            return next((word for word in found if word is not None), None)
