"""Searches as the list of letters shows them: chips, links that narrow, and mistakes."""

import re
from typing import Final

from msgspec import Struct

from deadletter.core.errors import QueryError
from deadletter.core.query import All, Any, Node, parse, sealed, show
from deadletter.core.query.fields import field_called, nearest
from deadletter.server.console.pages import path_to

DEFAULT: Final = "is:open"
"""The search of the page that is opened without one."""
_NAME: Final = re.compile(r"[^\s():]*")
_TOKEN: Final = re.compile(r"\S*")


class Chip(Struct, frozen=True):
    """A term of a search, and the path of the search without it."""

    text: str
    without: str


class Mistake(Struct, frozen=True, kw_only=True):
    """What is wrong with a search: the sentence, and the text around the place."""

    text: str
    before: str = ""
    token: str = ""
    rest: str = ""
    instead: str = ""  # the search that was probably meant
    instead_path: str = ""


def understand(query: str, *, masked: bool) -> Node:
    """Return the tree of a search; `masked` for callers who see masked messages."""
    node = parse(query)
    return sealed(node, query) if masked else node


def list_path(query: str, **more: str) -> str:
    """Return the path of the list for a search; an empty search shows all letters."""
    if query:
        return path_to("letters", q=query, **more)
    path = path_to("letters", **more)
    return f"{path}{'&' if '?' in path else '?'}q="


def top_terms(node: Node) -> tuple[Node, ...]:
    """Return the terms that a letter has to fulfil all."""
    if isinstance(node, All):
        return node.terms
    return (node,)


def chips(node: Node) -> tuple[Chip, ...]:
    """Return the terms of a search, each with the search without it."""
    terms = top_terms(node)
    return tuple(
        Chip(show(term), list_path(show(All((*terms[:at], *terms[at + 1 :])))))
        for at, term in enumerate(terms)
    )


def narrowed(query: str, node: Node, term: str) -> str:
    """Return a search with one more term, as a person would have typed it."""
    text = query.strip()
    if isinstance(node, Any) and len(node.terms) > 1:
        text = f"({text})"
    return f"{text} {term}".strip()


def mistake_in(query: str, error: QueryError) -> Mistake:
    """Return what is wrong with a search, with the place of it and what to write instead."""
    at = min(error.at, len(query))
    found = _TOKEN.match(query, at)
    token = found[0] if found else ""
    instead = _instead(query, at)
    return Mistake(
        text=_sentence(error.text),
        before=query[:at],
        token=token,
        rest=query[at + len(token) :],
        instead=instead,
        instead_path=list_path(instead) if instead else "",
    )


def _sentence(text: str) -> str:
    """Return a text as a sentence; the name of a field at its start stays as it is."""
    found = _NAME.match(text)
    if found is None or field_called(found[0].partition(".")[0]) is None:
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _instead(query: str, at: int) -> str:
    """Return the search with the nearest name of a field, if its name is wrong there."""
    found = _NAME.match(query, at)
    name = found[0] if found else ""
    if not name or query[at + len(name) : at + len(name) + 1] != ":":
        return ""
    near = nearest(name)
    if near is None or near == name.lower():
        return ""
    instead = query[:at] + near + query[at + len(name) :]
    try:
        parse(instead)
    except QueryError:
        return ""
    return instead
