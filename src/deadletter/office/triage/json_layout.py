"""
JSON in lines, as it was written: numbers verbatim, duplicates kept, secrets masked.

The text is read once, from its beginning or from a position that was reached before, and never
as a whole: hostile documents cost what their first megabyte costs.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.redact import MASK, is_secret_name, redact
from deadletter.core.text import clean

WIDTH: Final = 2_000  # characters of one line
DEEPEST: Final = 100  # containers in each other; deeper documents are shown as text
FOLDED_DEPTH: Final = 3  # containers from this depth on are folded at first
FOLDED_MEMBERS: Final = 20  # ...and those with more members


class LineKind(StrEnum):
    """The kinds of lines of a body."""

    OBJECT = "object"  # the beginning of one
    ARRAY = "array"
    END = "end"  # of an object or array
    STRING = "string"
    NUMBER = "number"
    LITERAL = "literal"  # true, false, null
    MASKED = "masked"
    TEXT = "text"  # of a body that is not JSON
    CONTINUED = "continued"  # the rest of a long line of text
    BYTES = "bytes"  # offset, hexadecimal digits and characters
    NOTE = "note"  # about the body, not from it


class BodyLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a body, harmless on a page and a terminal."""

    kind: LineKind
    text: str
    name: str = ""  # the quoted name of a member of an object
    depth: int = 0
    members: int | None = None  # of an object or array, as far as they are in this slice
    fold: bool = False  # better shown when asked for

    def __str__(self) -> str:
        """Return the line with its indentation."""
        name = f"{self.name}: " if self.name else ""
        return f"{'  ' * self.depth}{name}{self.text}"


class JsonPosition(Struct, frozen=True):
    """A position between two lines of a document."""

    at: int = 0
    stack: str = ""  # the brackets that are open
    after: str = ""  # what was read last: "", an opening bracket, a comma or a value
    hidden: int = 0  # brackets that are open within a masked value
    name: str = ""  # ...and the name of that value


class NotJson(ValueError):
    """The text is not JSON, or nested too deeply, from `at` on."""

    def __init__(self, at: int) -> None:
        super().__init__(f"not JSON at byte {at}")
        self.at = at


_STRING: Final = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_NUMBER: Final = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
_TOKEN: Final = re.compile(
    rb"[ \t\n\r]*+(?:(?P<bracket>[{}\[\]])|(?P<string>%b)|(?P<literal>true|false|null)"
    rb"|(?P<number>%b|NaN|-?Infinity))" % (_STRING, _NUMBER)
)
_COLON: Final = re.compile(rb"[ \t\n\r]*+:")
_COMMA: Final = re.compile(rb"[ \t\n\r]*+,")
_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
_EMPTY: Final = {b"{": re.compile(rb"[ \t\n\r]*+\}"), b"[": re.compile(rb"[ \t\n\r]*+\]")}
_HIDDEN: Final = re.compile(rb'[^"{}\[\]]*+(?:%b|([{}\[\]]))' % _STRING)
_WHOLE_CHARACTERS: Final = re.compile(rb'"(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u]){0,6000}+')
_PAIRS: Final = {"}": "{", "]": "["}


class JsonLayout:
    """The lines of a JSON document, from a position on; each call of `step` reads one line."""

    def __init__(self, body: bytes, end: int, position: JsonPosition, *, reveal: bool) -> None:
        self.lines: list[BodyLine] = []
        self.at = position.at
        self._body = body
        self._end = end
        self._reveal = reveal
        self._stack = list(position.stack)
        self._after = position.after
        self._hidden = position.hidden
        self._name = position.name
        self._opened: list[tuple[int, int]] = [(-1, 0)] * len(self._stack)  # line, members

    @property
    def is_done(self) -> bool:
        """Return whether the document has ended."""
        return not self._stack and not self._hidden and bool(self._after)

    @property
    def position(self) -> JsonPosition:
        """Return the position after the lines so far."""
        return JsonPosition(self.at, "".join(self._stack), self._after, self._hidden, self._name)

    def step(self, most: int) -> None:
        """Read one line; within a masked value, at most `most` bytes. Raises NotJson."""
        if self._hidden:
            self._skip(most)
            return
        kind, token = self._take()
        if token in {b"}", b"]"}:
            self._close(token.decode())
            return
        if self._after not in {"", "{", "[", ","}:
            raise NotJson(self.at)
        name = ""
        is_hidden = False
        if self._stack and self._stack[-1] == "{":
            if kind != "string":
                raise NotJson(self.at)
            name, is_secret = _named(token) if len(token) <= WIDTH else _named.__wrapped__(token)
            is_hidden = is_secret and not self._reveal
            self._expect(_COLON)
            kind, token = self._take()
        if self._opened:
            line, members = self._opened[-1]
            self._opened[-1] = line, members + 1
        self._value(kind, token, name, is_hidden=is_hidden)

    def forget(self) -> None:
        """Forget the lines so far; the position stays."""
        self.lines.clear()
        self._opened = [(-1, 0)] * len(self._stack)

    def finished(self) -> list[BodyLine]:
        """Return the lines, with the numbers of members of those not closed here."""
        for line, members in self._opened:
            self._count(line, members)
        return self.lines

    def _value(self, kind: str, token: bytes, name: str, *, is_hidden: bool) -> None:
        if token in {b"{", b"["}:
            if empty := _EMPTY[token].match(self._body, self.at, self._end):
                self.at = empty.end()
                text = "{}" if token == b"{" else "[]"
                shown = LineKind.OBJECT if token == b"{" else LineKind.ARRAY
                self._add(shown, text + self._comma(), name)
            elif is_hidden:
                self._hidden, self._name = 1, name
            else:
                self._open(token.decode(), name)
        elif token in {b"}", b"]"}:
            raise NotJson(self.at)
        elif is_hidden:
            self._add(LineKind.MASKED, _MASKED + self._comma(), name)
        elif kind == "string":
            text = _quoted(token, reveal=self._reveal)
            self._add(LineKind.STRING, text + self._comma(), name)
        else:
            text = _scalar(token, reveal=self._reveal)
            self._add(LineKind(kind), text + self._comma(), name)

    def _open(self, bracket: str, name: str) -> None:
        if len(self._stack) >= DEEPEST:
            raise NotJson(self.at)
        self._opened.append((len(self.lines), 0))
        self._add(LineKind.OBJECT if bracket == "{" else LineKind.ARRAY, bracket, name)
        self._stack.append(bracket)
        self._after = bracket

    def _close(self, bracket: str) -> None:
        if not self._stack or self._stack[-1] != _PAIRS[bracket] or self._after == ",":
            raise NotJson(self.at)
        self._stack.pop()
        self._count(*self._opened.pop())
        self._add(LineKind.END, bracket + self._comma(), "")

    def _skip(self, most: int) -> None:
        """Read on within a masked value."""
        bound = self.at + most
        while self._hidden and self.at < bound:
            found = _HIDDEN.match(self._body, self.at, self._end)
            if found is None:
                raise NotJson(self.at)
            self.at = found.end()
            if bracket := found[1]:
                self._hidden += 1 if bracket in b"{[" else -1
        if not self._hidden:
            self._add(LineKind.MASKED, _MASKED + self._comma(), self._name)
            self._name = ""

    def _take(self) -> tuple[str, bytes]:
        found = _TOKEN.match(self._body, self.at, self._end)
        if found is None or found.lastgroup is None:
            raise NotJson(self.at)
        self.at = found.end()
        return found.lastgroup, found[found.lastgroup]

    def _expect(self, pattern: re.Pattern[bytes]) -> None:
        found = pattern.match(self._body, self.at, self._end)
        if found is None:
            raise NotJson(self.at)
        self.at = found.end()

    def _comma(self) -> str:
        """Read the comma after a value, if there is one."""
        if not self._stack:
            rest = _SPACE.match(self._body, self.at, self._end)
            if rest is None or rest.end() < self._end:
                raise NotJson(self.at)
        found = _COMMA.match(self._body, self.at, self._end)
        if found is None:
            self._after = "value"
            return ""
        self.at = found.end()
        self._after = ","
        return ","

    def _add(self, kind: LineKind, text: str, name: str) -> None:
        depth = len(self._stack)
        self.lines.append(BodyLine(kind=kind, text=text, name=name, depth=depth))

    def _count(self, line: int, members: int) -> None:
        if line >= 0:
            opened = self.lines[line]
            self.lines[line] = BodyLine(
                kind=opened.kind,
                text=opened.text,
                name=opened.name,
                depth=opened.depth,
                members=members,
                fold=opened.depth >= FOLDED_DEPTH or members > FOLDED_MEMBERS,
            )


Span: TypeAlias = tuple[int, int]
_MEMBER: Final = re.compile(rb'"((?:[^"\\]|\\.){0,200}+)"[ \t\n\r]*+:[ \t\n\r]*+')


class SecretMembers:
    """The bytes of values in a JSON document whose names say that they are secrets."""

    def __init__(self) -> None:
        self._at = 0
        self._depth = 0  # brackets that are open within a secret value
        self._begin = 0  # of that value
        self._spans: list[Span] = []

    def up_to(self, body: bytes, end: int) -> Sequence[Span]:
        """Return the values that begin before a byte; later calls read on."""
        while self._at < end:
            if self._depth:
                self._read_on(body, end)
                continue
            found = _MEMBER.search(body, self._at, end + _LONGEST_NAME)
            if found is None:
                self._at = end
            elif _is_secret(found[1]):
                self._begin, self._at = found.end(), found.end()
                self._begin_value(body)
            else:
                self._at = found.end()
        open_ = [(self._begin, end)] if self._depth else []
        return [*self._spans, *open_]

    def _begin_value(self, body: bytes) -> None:
        found = _TOKEN.match(body, self._at)
        self._at = len(body) if found is None else found.end()
        if found is not None and found["bracket"]:
            self._depth = 1
        else:
            self._spans.append((self._begin, self._at))

    def _read_on(self, body: bytes, end: int) -> None:
        """Read on within an object or array; a broken one goes on to the end."""
        while self._depth and self._at < end:
            found = _HIDDEN.match(body, self._at)
            if found is None:
                self._at, self._depth = len(body), 0
            else:
                self._at = found.end()
                if bracket := found[1]:
                    self._depth += 1 if bracket in b"{[" else -1
        if not self._depth:
            self._spans.append((self._begin, self._at))


_LONGEST_NAME: Final = 300  # bytes with its colon


@lru_cache(1_000)
def _is_secret(name: bytes) -> bool:
    text = name.decode("utf-8", "replace")
    if "\\" in text:
        with suppress(ValueError):
            text = str(json.loads(f'"{text}"'))
    return is_secret_name(text)


_MASKED: Final = f'"{MASK}"'


@lru_cache(1_000)
def _named(token: bytes) -> tuple[str, bool]:
    """Return the quoted name of a member, and whether its value is a secret."""
    name = _decoded(token)
    return clean(json.dumps(name[:WIDTH], ensure_ascii=False)), is_secret_name(name)


def _quoted(token: bytes, *, reveal: bool) -> str:
    text = _decoded(token)
    shown = clean(json.dumps(text if reveal else redact(text), ensure_ascii=False))
    if len(token) > 2 * WIDTH or len(shown) > WIDTH:
        return f"{shown[:WIDTH]}… ({len(token) - 2:,} bytes)"
    return shown


def _scalar(token: bytes, *, reveal: bool) -> str:
    text = token[: 3 * WIDTH].decode()
    shown = text if reveal else redact(text)
    return shown if len(shown) <= WIDTH else f"{shown[:WIDTH]}… ({len(token):,} characters)"


def _decoded(token: bytes) -> str:
    """Return the text of a quoted string, or the beginning of a long one."""
    if len(token) > 6_000:
        found = _WHOLE_CHARACTERS.match(token)
        token = token[: found.end() if found else 1] + b'"'
    text = token.decode("utf-8", "surrogateescape")
    decoded = json.loads(text, strict=False)
    return str(decoded).encode("utf-8", "surrogatepass").decode("utf-8", "backslashreplace")
