"""
The field of a job's data that counts its attempts, for everybody who reads the queue.

The count is written into the data when a delivery is released. What the data was before is
noted beside it, so that letters and replays have the body as it was sent, byte for byte.
"""

from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

_BLANK: Final = " \t\n\r"
_decoder: Final = JSONDecoder()


class Counted(Struct, frozen=True, omit_defaults=True):
    """What was written into a field, and what it replaced."""

    field: str
    wrote: int
    was: str | None = None  # None: the data had no such field


_note: Final = msgspec.json.Encoder().encode
_read_note: Final = msgspec.json.Decoder(Counted).decode


class _Place(NamedTuple):
    start: int
    end: int
    value: Any


def count_attempt(body: bytes, field: str, charged: int) -> tuple[bytes, bytes] | None:
    """
    Return the data with the number of the next attempt, and the note of what it was.

    A body without the field counts from 1. Returns None if the body is not an object, or the
    field not a whole number.
    """
    text, places = _located(body, field)
    if places is None:
        return None
    if not places:
        wrote = 1 + charged
        end = text.rindex("}")
        comma = "" if text[:end].rstrip(_BLANK).endswith("{") else ","
        data = f"{text[:end]}{comma}{_name(field)}{wrote}{text[end:]}"
        return data.encode(), _note(Counted(field, wrote))
    place = places[-1]  # of several the last one counts, as in JavaScript
    if type(place.value) is not int:
        return None
    wrote = place.value + charged
    data = f"{text[: place.start]}{wrote}{text[place.end :]}"
    return data.encode(), _note(Counted(field, wrote, text[place.start : place.end]))


def restore_data(data: bytes, note: bytes) -> bytes:
    """Return the data as it was sent; what somebody else has changed stays."""
    if not note:
        return data
    try:
        counted = _read_note(note)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return data
    text, places = _located(data, counted.field)
    if not places or text[places[-1].start : places[-1].end] != str(counted.wrote):
        return data
    start, end, _ = places[-1]
    if counted.was is not None:
        return f"{text[:start]}{counted.was}{text[end:]}".encode()
    name = _name(counted.field)
    if not text[:start].endswith(name):
        return data
    start -= len(name)
    start -= text[:start].endswith(",")
    return f"{text[:start]}{text[end:]}".encode()


def _name(field: str) -> str:
    return f"{_note(field).decode()}:"


def _located(body: bytes, field: str) -> tuple[str, list[_Place] | None]:
    """Return the text of a body and where the field's values are; None: it is not an object."""
    try:
        text = body.decode()
        return text, [place for name, place in _members(text) if name == field]
    except (UnicodeDecodeError, JSONDecodeError, IndexError, RecursionError, ValueError):
        return "", None


def _members(text: str) -> Iterator[tuple[str, _Place]]:
    """Yield names and values of an object. Raises ValueError for any other text."""
    at = _skip(text, 0)
    if text[at] != "{":
        raise ValueError("not an object")
    at = _skip(text, at + 1)
    while text[at] != "}":
        if text[at] == ",":
            at = _skip(text, at + 1)
        if text[at] != '"':
            raise ValueError("not an object")
        name, at = _decoder.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError("not an object")
        start = _skip(text, at + 1)
        value, end = _decoder.raw_decode(text, start)
        yield name, _Place(start, end, value)
        at = _skip(text, end)
    if _skip(text, at + 1) != len(text):
        raise ValueError("more than an object")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at
