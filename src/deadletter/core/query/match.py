"""
Letters judged by a search.

A search is prepared once and then judges any number of letters; the head is
looked at first, and a body is decoded once at most, and only if it must be.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TypeAlias

from deadletter.core.letter import DeadLetter, LetterHead

from .ast import All, Any, Node, Not, Term, Word
from .conditions import HAS_ON_HEAD, condition, holds
from .contents import (
    HAS_IN_MESSAGE,
    LOOK,
    decoded,
    header_matches,
    may_have,
    scalars,
    value_test,
    word_test,
)
from .pattern import fold
from .plan import needs_contents


class _Opened:
    """A letter being judged, with what has been prepared of it so far."""

    def __init__(self, letter: DeadLetter) -> None:
        self.head = letter.head
        self.message = letter.message

    @cached_property
    def document(self) -> object:
        return decoded(self.message.body)

    @cached_property
    def texts(self) -> tuple[str, bytes]:
        return fold(self.head.error_text), self.message.body[:LOOK].lower()


_Test: TypeAlias = Callable[[_Opened], bool]


def matches(node: Node, letter: DeadLetter, *, now: datetime) -> bool:
    """Whether a letter is among those a search asks for, as of `now`."""
    return matcher(node, now=now)(letter)


def matcher(node: Node, *, now: datetime) -> Callable[[DeadLetter], bool]:
    """The same for many letters: the search is prepared once."""
    test = _test(node, now)
    return lambda letter: test(_Opened(letter))


def term_matches_head(term: Term, head: LetterHead, now: datetime) -> bool:
    """Whether a head fulfils a term that needs no contents."""
    return holds(condition(term, now), head)


def _test(node: Node, now: datetime) -> _Test:
    match node:
        case Term():
            return _term(node, now)
        case Word():
            found = word_test(node)
            return lambda letter: found(*letter.texts)
        case Not(term):
            test = _test(term, now)
            return lambda letter: not test(letter)
        case All(terms):
            tests = _tests(terms, now)
            return lambda letter: all(test(letter) for test in tests)
        case Any(terms):
            tests = _tests(terms, now)
            return lambda letter: any(test(letter) for test in tests)


def _tests(terms: tuple[Node, ...], now: datetime) -> list[_Test]:
    # The cheap ones first: often they settle it and the body stays closed.
    return [_test(term, now) for term in sorted(terms, key=needs_contents)]


def _term(term: Term, now: datetime) -> _Test:
    if not needs_contents(term):
        asked = condition(term, now)
        return lambda letter: holds(asked, letter.head)
    match term.field:
        case "body":
            fulfils, path = value_test(term), term.path
            worth = may_have(path)
            return lambda letter: (
                worth(letter.message.body)
                and any(map(fulfils, scalars(letter.document, path)))
            )
        case "header":
            return lambda letter: header_matches(term, letter.message.headers)
    return _has(term)


def _has(term: Term) -> _Test:
    on_head = [HAS_ON_HEAD[value] for value in term.values if value in HAS_ON_HEAD]
    in_message = [
        HAS_IN_MESSAGE[value] for value in term.values if value in HAS_IN_MESSAGE
    ]
    return lambda letter: (
        any(holds(asked, letter.head) for asked in on_head)
        or any(has(letter.message) for has in in_message)
    )
