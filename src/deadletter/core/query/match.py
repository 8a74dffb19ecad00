"""
Matching of letters.

A search is prepared once and then judges any number of letters. The head is judged first; a
body is decoded at most once, and only if needed.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.failure import Trouble
from deadletter.core.letter import OPEN, DeadLetter, LetterHead
from deadletter.core.message import Headers, Message

from .ast import EVERYTHING, All, Node, Not, Op, Term, Word
from .ast import Any as AstAny
from .fields import FIELDS, Field, Kind, Pieces, Way, fits, fold, number, pieces, time_span
from .resolve import absolute

# Terms and words about contents.
#
# Bodies are hostile: they are decoded within limits, and invalid ones match nothing.
# Content is never a pattern.

LOOK: Final = 1_000_000
"""The most bytes of a body that are decoded or searched for words."""

Scalar: TypeAlias = str | int | float | bool | None

_NOTHING: Final = object()
_COMPARED: Final[dict[Op, Callable[[Any, Any], bool]]] = {
    Op.GT: operator.gt,
    Op.GE: operator.ge,
    Op.LT: operator.lt,
    Op.LE: operator.le,
}

HAS_IN_MESSAGE: Final[dict[str, Callable[[Message], bool]]] = {
    "reply_to": lambda message: bool(message.reply_to),
    "expires": lambda message: message.expires_at is not None,
    "headers": lambda message: bool(message.headers),
    "body": lambda message: bool(message.body),
}


def decoded(body: bytes) -> object:
    """Return the JSON document of a body; an empty value if it is not JSON."""
    if len(body) > LOOK:
        return _NOTHING
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _NOTHING


def scalars(document: object, path: tuple[str, ...]) -> list[Scalar]:
    """
    Return the comparable values at a path in a document.

    A list counts as its members, an object as nothing.
    """
    found: Any = document
    for part in path:
        if isinstance(found, dict):
            found = found.get(part, _NOTHING)
        elif isinstance(found, list) and _is_index(part) and int(part) < len(found):
            found = found[int(part)]
        else:
            return []
    several = found if isinstance(found, list) else [found]
    return [value for value in several if _is_scalar(value)]


def may_have(path: tuple[str, ...]) -> Callable[[bytes], bool]:
    """Return a fast test that excludes most bodies without such a path."""
    names = [part for part in path if not _is_index(part)]
    if not names:
        return lambda body: True
    name = max(names, key=len).encode("utf-8", "surrogatepass")
    # A backslash may spell a name in another way.
    return lambda body: name in body or b"\\" in body


def body_value(body: bytes, path: tuple[str, ...]) -> list[Scalar]:
    """Return the value at a path in a JSON body; None in any other body."""
    return scalars(decoded(body), path)


def body_matches(term: Term, body: bytes) -> bool:
    """Return whether `body.path:value` matches a body."""
    return any(map(value_test(term), body_value(body, term.path)))


def header_matches(term: Term, headers: Headers) -> bool:
    """Return whether `header.name:value` matches any header of that name."""
    fulfils = value_test(term)
    name = fold(term.path[0])
    return any(
        fulfils(value.decode("utf-8", "replace")) for key, value in headers if fold(key) == name
    )


def word_matches(word: Word, error_text: str, body: bytes) -> bool:
    """Return whether a word is in the error text or the body, in any case."""
    return word_test(word)(fold(error_text), body[:LOOK].lower())


def word_test(word: Word) -> Callable[[str, bytes], bool]:
    """Return a test for a word in a folded error text or body."""
    parts = ("", *map(fold, pieces(word.text)), "")
    raw = tuple(part.encode("utf-8", "surrogatepass") for part in parts)
    return lambda text, body: fits(parts, text) or fits(raw, body)


def value_test(term: Term) -> Callable[[Scalar], bool]:
    """Return a test that compares a value of the contents with those of a term."""
    if term.op is not Op.IS:
        compared, bound = _COMPARED[term.op], number(term.values[0])
        return lambda value: (
            bound is not None and (found := _number(value)) is not None and compared(found, bound)
        )
    patterns = [pieces(value) for value in term.values]
    numbers = {number(parts[0]) for parts in patterns if len(parts) == 1} - {None}

    def is_one(value: Scalar) -> bool:
        if numbers and (found := _number(value)) is not None and found in numbers:
            return True
        text = _text(value)
        return any(fits(parts, text) for parts in patterns)

    return is_one


def _is_index(part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) <= 9


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _number(value: Scalar) -> int | float | None:
    if value is None or isinstance(value, bool):
        return None
    return number(value) if isinstance(value, str) else value


def _text(value: Scalar) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


# The part of a search that a store can decide by its columns, and the rest.
#
# A store compiles the first part into a filter (see `filters`) and judges the letters
# found by the rest, with `matcher`.

_LONG_TEXT: Final = 10  # the cost of searching an error text


def needs_contents(node: Node) -> bool:
    """Return whether judging takes more than a letter's head."""
    match node:
        case Word():
            return True
        case Term():
            return FIELDS[node.field].kind is Kind.PATH or (
                node.field == "has" and not HAS_IN_MESSAGE.keys().isdisjoint(node.values)
            )
        case Not(term):
            return needs_contents(term)
        case All(terms) | AstAny(terms):
            return any(map(needs_contents, terms))


def weight(node: Node) -> int:
    """Return the cost of trying its patterns on one head, in comparisons of names."""
    match node:
        case Term():
            field = FIELDS[node.field]
            if field.kind is not Kind.TEXT:
                return 0
            if field.way is Way.EXACT:
                return sum("*" in value for value in node.values)
            return len(node.values) * (_LONG_TEXT if field.way is Way.WITHIN else 1)
        case Not(term):
            return weight(term)
        case All(terms) | AstAny(terms):
            return sum(map(weight, terms))
        case Word():
            return 0


def is_costly(node: Node) -> bool:
    """Return whether letters must be read or tried one by one, so that others go first."""
    return needs_contents(node) or weight(node) >= _LONG_TEXT


def split(node: Node) -> tuple[tuple[Node, ...], Node]:
    """
    Return the nodes that heads can decide, and the rest.

    A letter matches if it matches every node of both.
    """
    by_head: list[Node] = []
    rest: list[Node] = []
    for part in _conjuncts(node):
        (rest if needs_contents(part) else by_head).append(part)
    match rest:
        case []:
            return tuple(by_head), EVERYTHING
        case [only]:
            return tuple(by_head), only
    return tuple(by_head), All(tuple(rest))


def _conjuncts(node: Node) -> Iterator[Node]:
    match node:
        case All(terms):
            for term in terms:
                yield from _conjuncts(term)
        case Not(Not(term)):
            yield from _conjuncts(term)
        case Not(AstAny(terms)):  # none of them
            for term in terms:
                yield from _conjuncts(Not(term))
        case _:
            yield node


# Conditions on a letter's head.
#
# A term becomes a few conditions. `holds` judges a head by them, and a store compiles
# each into its language, so both mean the same. A missing value (None) fulfils none.


class OneOf(Struct, frozen=True):
    """The attribute is one of these texts, exactly."""

    attribute: str
    values: frozenset[str]


class Like(Struct, frozen=True):
    """
    The attribute's whole text fits the pieces, with any text between them.

    With `folded`, the pieces are in lower case, and A to Z of the attribute count as a to z.
    """

    attribute: str
    pieces: Pieces
    folded: bool = False


class Between(Struct, frozen=True):
    """The attribute is at least `low` and less than `high`, where given."""

    attribute: str
    low: int | datetime | None = None
    high: int | datetime | None = None


class Present(Struct, frozen=True):
    """The attribute is a text that is not empty."""

    attribute: str


class Flagged(Struct, frozen=True):
    """The attribute is true."""

    attribute: str


class Either(Struct, frozen=True):
    """At least one of these holds."""

    conditions: "tuple[Condition, ...]"


Condition: TypeAlias = OneOf | Like | Between | Present | Flagged | Either

HAS_ON_HEAD: Final[dict[str, Condition]] = {
    "trace": Present("trace_id"),
    "key": Present("key"),
    "idempotency_key": Present("business_key"),
    "replays": Between("replays", low=1),
}


def condition(term: Term, now: datetime) -> Condition:
    """Return what a term that needs no contents requires of a head."""
    term = absolute(term, now)
    field = FIELDS[term.field]
    match field.kind:
        case Kind.TEXT if term.op is Op.IS:  # others: see `with_versions`
            return _conditions_text(field, term.values)
        case Kind.NUMBER:
            return _either(
                _range(field, term.op, int(value), int(value) + 1) for value in term.values
            )
        case Kind.TIME:
            return _either(_range(field, term.op, *time_span(value)) for value in term.values)
        case Kind.ENUM:
            return _choice(field, term.values)
        case Kind.FLAG:
            return _either(HAS_ON_HEAD[value] for value in term.values)
    # Outages, and comparisons of versions, are replaced before: see `resolve`.
    raise AssertionError(f"{field.name} cannot be decided by a head")


def holds(condition: Condition, head: LetterHead) -> bool:
    """Return whether a head fulfils a condition."""
    if isinstance(condition, Either):
        return any(holds(part, head) for part in condition.conditions)
    value: Any = getattr(head, condition.attribute)
    match condition:
        case OneOf(_, values):
            return value in values
        case Like(_, parts, folded):
            return value is not None and fits(parts, fold(value) if folded else value)
        case Between(_, low, high):
            return (low is None or value >= low) and (high is None or value < high)
        case Present() | Flagged():
            return bool(value)


def _either(conditions: Iterable[Condition]) -> Condition:
    found = tuple(conditions)
    return found[0] if len(found) == 1 else Either(found)


def _conditions_text(field: Field, values: tuple[str, ...]) -> Condition:
    found: list[Condition] = []
    exact: set[str] = set()
    for parts in map(pieces, values):
        if field.way is Way.EXACT and len(parts) == 1:
            exact.add(parts[0])
        else:
            found += _likes(field, parts)
    if exact:
        found.append(OneOf(field.attribute, frozenset(exact)))
    return _either(found)


def _likes(field: Field, parts: Pieces) -> list[Condition]:
    if field.way is Way.EXACT:
        return [Like(field.attribute, parts)]
    parts = tuple(map(fold, parts))
    match field.way:
        case Way.FOLDED:
            return [Like(field.attribute, parts, folded=True)]
        case Way.WITHIN:
            return [Like(field.attribute, ("", *parts, ""), folded=True)]
        case Way.NAME:
            names = (field.attribute, "error_name")
            return [Like(name, parts, folded=True) for name in names]


def _choice(field: Field, values: tuple[str, ...]) -> Condition:
    if field.name == "category":
        troubles = frozenset(t.value for t in Trouble if t.category in values)
        return OneOf("trouble", troubles)
    if field.name != "is":
        return OneOf(field.attribute, frozenset(values))
    states = frozenset(values) - {"open", "conflict"}
    if "open" in values:
        states |= {state.value for state in OPEN}
    found: list[Condition] = [OneOf("state", states)] if states else []
    if "conflict" in values:
        found.append(Flagged("conflict"))
    return _either(found)


def _range(field: Field, op: Op, low: int | datetime, high: int | datetime) -> Between:
    match op:
        case Op.IS:
            return Between(field.attribute, low, high)
        case Op.GT:
            return Between(field.attribute, low=high)
        case Op.GE:
            return Between(field.attribute, low=low)
        case Op.LT:
            return Between(field.attribute, high=low)
        case Op.LE:
            return Between(field.attribute, high=high)


class _Opened:
    """A letter being judged, with the values prepared so far."""

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
    """Return whether a letter matches a search, as of `now`."""
    return matcher(node, now=now)(letter)


def matcher(node: Node, *, now: datetime) -> Callable[[DeadLetter], bool]:
    """Return a test for many letters: the search is prepared once."""
    test = _test(node, now)
    return lambda letter: test(_Opened(letter))


def term_matches_head(term: Term, head: LetterHead, now: datetime) -> bool:
    """Return whether a head fulfils a term that needs no contents."""
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
        case AstAny(terms):
            tests = _tests(terms, now)
            return lambda letter: any(test(letter) for test in tests)


def _tests(terms: tuple[Node, ...], now: datetime) -> list[_Test]:
    # The cheap ones first: often the body need not be decoded.
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
                worth(letter.message.body) and any(map(fulfils, scalars(letter.document, path)))
            )
        case "header":
            return lambda letter: header_matches(term, letter.message.headers)
    return _has(term)


def _has(term: Term) -> _Test:
    on_head = [HAS_ON_HEAD[value] for value in term.values if value in HAS_ON_HEAD]
    in_message = [HAS_IN_MESSAGE[value] for value in term.values if value in HAS_IN_MESSAGE]
    return lambda letter: (
        any(holds(asked, letter.head) for asked in on_head)
        or any(has(letter.message) for has in in_message)
    )
