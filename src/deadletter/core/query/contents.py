"""
What terms and words ask of a message's contents.

Bodies are hostile: they are decoded within limits, and what cannot be decoded
matches nothing. No content is ever a pattern.
"""

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from deadletter.core.message import Headers, Message

from .ast import Op, Term, Word
from .pattern import fits, fold, pieces
from .values import number

LOOK: Final = 1_000_000
"""Bytes: no larger body is decoded, and words are sought in no more of it."""

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
    """The JSON document a body is; something without any place in it if not."""
    if len(body) > LOOK:
        return _NOTHING
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _NOTHING


def scalars(document: object, path: tuple[str, ...]) -> list[Scalar]:
    """
    What stands at a place in a document, as values that can be compared.

    A list stands for what is in it, an object for nothing.
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
    """What tells most bodies apart that have no such place, without decoding them."""
    names = [part for part in path if not _is_index(part)]
    if not names:
        return lambda body: True
    name = max(names, key=len).encode("utf-8", "surrogatepass")
    # With a backslash a name may be written in other ways than as it is.
    return lambda body: name in body or b"\\" in body


def body_value(body: bytes, path: tuple[str, ...]) -> list[Scalar]:
    """What stands at a place in a JSON body; nothing in any other body."""
    return scalars(decoded(body), path)


def body_matches(term: Term, body: bytes) -> bool:
    """Whether `body.path:value` is true of a body."""
    return any(map(value_test(term), body_value(body, term.path)))


def header_matches(term: Term, headers: Headers) -> bool:
    """Whether `header.name:value` is true of any header of that name."""
    fulfils = value_test(term)
    name = fold(term.path[0])
    return any(
        fulfils(value.decode("utf-8", "replace"))
        for key, value in headers
        if fold(key) == name
    )


def word_matches(word: Word, error_text: str, body: bytes) -> bool:
    """Whether a word is in the error text or the body, whatever its case."""
    return word_test(word)(fold(error_text), body[:LOOK].lower())


def word_test(word: Word) -> Callable[[str, bytes], bool]:
    """What finds a word in a folded error text or a folded body."""
    parts = ("", *map(fold, pieces(word.text)), "")
    raw = tuple(part.encode("utf-8", "surrogatepass") for part in parts)
    return lambda text, body: fits(parts, text) or fits(raw, body)


def value_test(term: Term) -> Callable[[Scalar], bool]:
    """What compares one value of the contents with those of a term."""
    if term.op is not Op.IS:
        compared, bound = _COMPARED[term.op], number(term.values[0])
        return lambda value: (
            bound is not None
            and (found := _number(value)) is not None
            and compared(found, bound)
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
