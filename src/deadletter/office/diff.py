"""
Differences between two messages, in lines for people.

Bodies are shown, never evaluated: JSON is laid out token by token, binary data is shown as
hexadecimal digits, and long bodies are compared up to a limit.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import accumulate
from typing import Final

import msgspec
from msgspec import Struct

from deadletter.core.message import Headers, Message
from deadletter.core.redact import MASK, is_secret_name, redact, redact_bytes

MOST_BYTES: Final = 1_000_000  # of a body
MOST_LINES: Final = 1_000  # compared, on either side
MOST_WIDTH: Final = 500  # characters of a line
_CONTEXT: Final = 3
_ROW: Final = 16  # bytes of what is no text
# What is nested deeply would fill the screen, and memory, with its indentation.
_LAYOUT: Final = 256_000  # bytes of JSON
_DEEP: Final = 50
_OPENS: Final = re.compile(r' *"(?P<name>(?:[^"\\]|\\.){0,200}+)": [\[{]')
_STEPS: Final = dict.fromkeys(b"[{", 1) | dict.fromkeys(b"]}", -1)


class Sign(StrEnum):
    """The kinds of lines in a comparison."""

    SAME = " "
    GONE = "-"
    NEW = "+"


class Line(Struct, frozen=True):
    """One line of a comparison."""

    sign: Sign
    text: str


class Difference(Struct, frozen=True, kw_only=True):
    """The difference in one part of a message; `cut` says that there is more."""

    part: str  # body, headers, content type, key
    lines: tuple[Line, ...]
    cut: bool = False


def differences(before: Message, after: Message, *, reveal: bool = False) -> tuple[Difference, ...]:
    """
    Return everything that differs between two messages, with a few lines of context.

    Secrets are masked unless `reveal` is set; that they differ is shown anyway.
    """
    parts = (
        ("content type", _named(before.content_type), _named(after.content_type)),
        ("key", _named(before.key), _named(after.key)),
        ("headers", _headers(before.headers), _headers(after.headers)),
        ("body", *_bodies(before.body, after.body, reveal=reveal)),
    )
    return tuple(
        _difference(part, old, new, reveal=reveal)
        for part, old, new in parts
        if old != new or (part == "body" and before.body != after.body)
    )


def _difference(part: str, old: Sequence[str], new: Sequence[str], *, reveal: bool) -> Difference:
    start, end = _alike(old, new)
    around = max(0, start - _CONTEXT)
    rest = max(0, end - _CONTEXT)
    olds, news = slice(around, len(old) - rest), slice(around, len(new) - rest)
    lines = _compared(
        old[olds][:MOST_LINES],
        new[news][:MOST_LINES],
        _shown(part, old, olds, reveal=reveal),
        _shown(part, new, news, reveal=reveal),
    )
    shown = tuple(Line(sign, text) for sign, text in lines)
    longest = max(len(old[olds]), len(new[news]))
    return Difference(part=part, lines=shown, cut=longest > MOST_LINES or not shown)


def _alike(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many lines are the same at the start, and of the rest at the end."""
    most = min(len(old), len(new))
    start = 0
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


def _compared(
    old: Sequence[str], new: Sequence[str], shown_old: Sequence[str], shown_new: Sequence[str]
) -> Iterator[tuple[Sign, str]]:
    """Return how lines differ, each as it is shown."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                yield from ((Sign.SAME, line) for line in shown_old[start:end])
                continue
            yield from ((Sign.GONE, line) for line in shown_old[start:end])
            yield from ((Sign.NEW, line) for line in shown_new[new_start:new_end])


def _named(value: str | None) -> list[str]:
    return [] if value is None else [value]


def _headers(headers: Headers) -> list[str]:
    return [f"{name}: {value.decode('utf-8', 'backslashreplace')}" for name, value in headers]


def _bodies(before: bytes, after: bytes, *, reveal: bool) -> tuple[list[str], list[str]]:
    old, new = _text(before), _text(after)
    if old is None or new is None:
        return _hex(before, reveal=reveal), _hex(after, reveal=reveal)
    laid_out = lay_out(before), lay_out(after)
    if laid_out[0] != laid_out[1]:  # else only the layout differs, or it is no JSON
        old, new = laid_out[0] or old, laid_out[1] or new
    return old.split("\n"), new.split("\n")


def _text(body: bytes) -> str | None:
    # A character cut in half at the end is no reason to show bytes.
    errors = "strict" if len(body) <= MOST_BYTES else "ignore"
    try:
        text = body[:MOST_BYTES].decode("utf-8", errors)
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def lay_out(body: bytes) -> str | None:
    """Return JSON with one value on each line; None if it is not JSON, too long or too deep."""
    if (
        len(body) > _LAYOUT
        or max(accumulate(_STEPS.get(byte, 0) for byte in body), default=0) > _DEEP
    ):
        return None
    try:
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _hex(body: bytes, *, reveal: bool) -> list[str]:
    some = body[: MOST_LINES * _ROW * 4]
    some = some if reveal else redact_bytes(some)
    return [some[at : at + _ROW].hex(" ") for at in range(0, len(some), _ROW)]


def _shown(part: str, lines: Sequence[str], which: slice, *, reveal: bool) -> list[str]:
    """Return these lines as they are shown."""
    if reveal:
        return [_fit(line) for line in lines[which][:MOST_LINES]]
    if part == "body":
        lines = _veiled(lines[: which.stop])
    return [_masked(part, _fit(line)) for line in lines[which][:MOST_LINES]]


def _veiled(lines: Sequence[str]) -> list[str]:
    """Return the lines with nested values of secret names masked."""
    found: list[str] = []
    until: str | None = None  # how far in the line begins that ends it
    for line in lines:
        begins = line[: len(line) - len(line.lstrip(" "))]
        if until is not None and len(begins) > len(until):
            found.append(f"{begins}{MASK}")
            continue
        until = None
        opening = _OPENS.fullmatch(line)
        if opening is not None and is_secret_name(opening["name"]):
            until = begins
        found.append(line)
    return found


def _fit(text: str) -> str:
    if len(text) <= MOST_WIDTH:
        return text
    return f"{text[:MOST_WIDTH]}… ({len(text):,} characters)"


def _masked(part: str, text: str) -> str:
    if part == "headers" and is_secret_name(text.partition(":")[0]):
        return f"{text.partition(':')[0]}: {MASK}"
    return redact(text)
