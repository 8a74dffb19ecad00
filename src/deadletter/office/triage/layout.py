"""
Contents of messages in lines, for people: bounded, masked, and never run or followed.

JSON is laid out as it is, every digit and every duplicate name kept; other text is shown as
text, everything else as bytes. A body is shown in slices, up to a megabyte of it.
"""

from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.redact import BLANK, blank, unblank
from deadletter.core.text import clean_lines

from .json_layout import (
    WIDTH,
    BodyLine,
    JsonLayout,
    JsonPosition,
    LineKind,
    NotJson,
    SecretMembers,
    Span,
)

SLICE: Final = 64 * 1024  # bytes
MOST_BYTES: Final = 1_000_000  # of a body that can be looked at; more can be downloaded
MOST_LINES: Final = 2_000  # of one slice
BYTES_IN_ROW: Final = 16
_BEFORE: Final = 24 * 1024  # bytes before a slice that may show that it begins with a secret
_BEHIND: Final = 16 * 1024  # bytes behind it that may show that it ends with one


class Form(StrEnum):
    """The forms in which a body can be shown."""

    PRETTY = "pretty"  # JSON laid out; of other bodies the form that fits
    RAW = "raw"  # text as it is
    HEX = "hex"


class BodySlice(Struct, frozen=True, kw_only=True):
    """
    A part of a body in lines, from byte `start` on; `after` continues it.

    If `after` is None although the body has more bytes, the rest has to be downloaded.
    """

    form: Form
    lines: tuple[BodyLine, ...]
    start: int
    after: int | None
    size: int  # bytes of the whole body


def layout(
    body: bytes,
    start: int = 0,
    *,
    form: Form = Form.PRETTY,
    reveal: bool = False,
    most: int = SLICE,
) -> BodySlice:
    """
    Return a slice of a body in lines.

    Args:
        body: The whole body.
        start: Where to begin: 0, or `after` of the slice before.
        form: The form to show it in.
        reveal: Show what is masked.
        most: The bytes of the slice, about.
    """
    if start < 0 or start > max(len(body), 1):
        raise ConfigError(f"start must be a byte of the body, 0 to {len(body):,}, got {start:,}")
    if not body:
        note = BodyLine(kind=LineKind.NOTE, text="(empty)")
        return BodySlice(form=form, lines=(note,), start=0, after=None, size=0)
    if form is Form.PRETTY:
        if _is_document(body):
            found = _json(body, start, reveal=reveal, most=most)
            if found is not None:
                return found
        form = Form.RAW if _is_text(body) else Form.HEX
    if form is Form.HEX:
        return _hex(body, start, reveal=reveal, most=most)
    return _raw(body, start, reveal=reveal, most=most)


def _is_text(body: bytes) -> bool:
    start = body[:SLICE]
    try:
        start.decode()
    except UnicodeDecodeError as error:
        # A character cut in half at the end is no reason to show bytes.
        if len(body) <= SLICE or error.start < len(start) - 3:
            return False
    return b"\x00" not in start


_Reached: TypeAlias = tuple[bytes, bool]  # digest of the body, revealed

_MOST_REACHED: Final = 100  # bodies
_reached: Final[dict[_Reached, dict[int, JsonPosition]]] = {}
"""
Positions at which slices ended. A caller only knows their bytes: which brackets are open there,
and whether they are in a masked value, must not be up to the caller.
"""


def _json(body: bytes, start: int, *, reveal: bool, most: int) -> BodySlice | None:
    """Return a slice of a JSON document; None if its first slice is not JSON."""
    end = min(len(body), MOST_BYTES)
    try:
        position = _position(body, end, start, reveal=reveal)
    except NotJson:
        return None
    lines = JsonLayout(body, end, position, reveal=reveal)
    problem = ""
    try:
        _read(lines, position.at + most)
    except NotJson as error:
        if position.at == 0 and len(body) <= MOST_BYTES:
            return None
        problem = f"not JSON from byte {error.at:,} on: look at the raw text"
        if len(body) > end:
            problem = f"the first {lines.at:,} of {len(body):,} bytes are shown"
    after = None
    found = lines.finished()
    if problem:
        found.append(BodyLine(kind=LineKind.NOTE, text=f"… {problem}"))
    elif not lines.is_done:
        after = lines.at
        _remember(body, lines.position, reveal=reveal)
    return BodySlice(
        form=Form.PRETTY, lines=tuple(found), start=position.at, after=after, size=len(body)
    )


def _read(lines: JsonLayout, end: int) -> None:
    while not lines.is_done and lines.at < end and len(lines.lines) < MOST_LINES:
        lines.step(end - lines.at)


def _position(body: bytes, end: int, start: int, *, reveal: bool) -> JsonPosition:
    """Return the position at a byte, or at the first line behind it."""
    if start == 0:
        return JsonPosition()
    reached = _reached.get((_digest(body), reveal), {})
    known = max((at for at in reached if at <= start), default=0)
    position = reached.get(known, JsonPosition())
    lines = JsonLayout(body, end, position, reveal=reveal)
    while not lines.is_done and lines.at < start:
        lines.step(start - lines.at)
        lines.forget()
    return lines.position


def _remember(body: bytes, position: JsonPosition, *, reveal: bool) -> None:
    key = _digest(body), reveal
    if key not in _reached:
        while len(_reached) >= _MOST_REACHED:
            _reached.pop(next(iter(_reached)), None)
        _reached[key] = {}
    _reached[key][position.at] = position


def _digest(body: bytes) -> bytes:
    return blake2b(body[:MOST_BYTES], digest_size=16).digest()


def _raw(body: bytes, start: int, *, reveal: bool, most: int) -> BodySlice:
    start = _boundary(body, start)
    chunk = body[start : _boundary(body, min(start + most, MOST_BYTES))]
    parts = chunk.split(b"\n", MOST_LINES)
    if len(parts) > MOST_LINES:
        chunk = chunk[: len(chunk) - len(parts[-1])]
    end = start + len(chunk)
    text = _masked(body, start, end, "utf-8", reveal=reveal)
    lines: list[BodyLine] = []
    for line in clean_lines(unblank(text)).removesuffix("\n").split("\n"):
        kind = LineKind.TEXT
        for at in range(0, max(len(line), 1), WIDTH):
            lines.append(BodyLine(kind=kind, text=line[at : at + WIDTH]))
            kind = LineKind.CONTINUED
    return _slice(body, Form.RAW, lines, start, end)


def _hex(body: bytes, start: int, *, reveal: bool, most: int) -> BodySlice:
    start -= start % BYTES_IN_ROW
    rows = min(MOST_LINES, max(1, most // BYTES_IN_ROW))
    end = min(start + rows * BYTES_IN_ROW, len(body), MOST_BYTES)
    text = _masked(body, start, end, "latin-1", reveal=reveal)
    lines = []
    for at in range(0, len(text), BYTES_IN_ROW):
        row = text[at : at + BYTES_IN_ROW]
        digits = " ".join(f"{ord(one):02x}" if one <= "\xff" else "**" for one in row)
        plain = "".join(_shown_byte(one) for one in row)
        shown = f"{start + at:06x}  {digits:<47}  {plain}"
        lines.append(BodyLine(kind=LineKind.BYTES, text=shown))
    return _slice(body, Form.HEX, lines, start, end)


def _shown_byte(one: str) -> str:
    if one > "\xff":
        return "*"
    return one if " " <= one <= "~" else "."


def _slice(body: bytes, form: Form, lines: list[BodyLine], start: int, end: int) -> BodySlice:
    after = end if end < min(len(body), MOST_BYTES) and end > start else None
    if after is None and end < len(body):
        text = f"… the first {end:,} of {len(body):,} bytes are shown"
        lines.append(BodyLine(kind=LineKind.NOTE, text=text))
    return BodySlice(form=form, lines=tuple(lines), start=start, after=after, size=len(body))


def _masked(body: bytes, start: int, end: int, encoding: str, *, reveal: bool) -> str:
    """Return the text of some bytes, with blanks in place of secrets that are around them."""
    if reveal:
        return body[start:end].decode(encoding, "backslashreplace")
    first = _boundary(body, max(0, start - _BEFORE))
    last = min(end + _BEHIND, len(body))
    secrets = _secrets(body, end)
    before = _decoded(body, first, start, secrets, encoding)
    here = _decoded(body, start, end, secrets, encoding)
    text = blank(before + here + _decoded(body, end, last, secrets, encoding))
    return text[len(before) : len(before) + len(here)]


def _decoded(body: bytes, start: int, end: int, secrets: Sequence[Span], encoding: str) -> str:
    """Return the text of some bytes, with blanks in place of the values of secret members."""
    pieces, at = [], start
    for begin, stop in secrets:
        if stop > at and begin < end:
            pieces.append(body[at : max(at, begin)].decode(encoding, "backslashreplace"))
            pieces.append(BLANK * (min(stop, end) - max(at, begin)))
            at = min(stop, end)
    return "".join([*pieces, body[at:end].decode(encoding, "backslashreplace")])


_MOST_SCANNED: Final = 20  # bodies
_scanned: Final[dict[bytes, SecretMembers]] = {}


def _secrets(body: bytes, end: int) -> Sequence[Span]:
    """Return where the values of secret members of a JSON document are, up to a byte."""
    if not _is_document(body):
        return ()
    digest = _digest(body)
    members = _scanned.get(digest)
    if members is None:
        while len(_scanned) >= _MOST_SCANNED:
            _scanned.pop(next(iter(_scanned)), None)
        members = _scanned[digest] = SecretMembers()
    return members.up_to(body, min(end, MOST_BYTES))


def _is_document(body: bytes) -> bool:
    return body[:MOST_BYTES].lstrip(b" \t\r\n")[:1] in {b"{", b"["}


def _boundary(body: bytes, at: int) -> int:
    """Return the next byte at which a character begins."""
    at = min(at, len(body))
    for ahead in range(at, min(at + 3, len(body))):
        if body[ahead] & 0xC0 != 0x80:
            return ahead
    return at
