"""The contents of a message on a page: its body in lines that fold, and its headers."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, structs

from deadletter.core.message import Headers, Message
from deadletter.core.redact import is_secret_name
from deadletter.core.text import clean, many
from deadletter.intake.dialects import unmarked
from deadletter.office.triage.json_layout import BodyLine, LineKind
from deadletter.office.triage.layout import SLICE, BodySlice, Form, layout
from deadletter.office.view import header_text
from deadletter.server.console.bounds import shortened, weight

HEADERS: Final = 25  # on one page
_LARGEST: Final = 120_000  # bytes of HTML that the lines of a body may take
_OF_LINE: Final = 48  # ...each about this many besides its text
_VALUE: Final = 500  # bytes of a header on a page
_NAME: Final = 200
_OPENING: Final = frozenset({LineKind.OBJECT, LineKind.ARRAY})


class BodyRow(Struct, frozen=True, kw_only=True):
    """One line of a body. One that `folds` is followed by lines up to one that `closes` it."""

    kind: str
    text: str
    name: str = ""
    indent: str = ""
    folds: str = ""  # how much is folded, in words
    closes: tuple[int, ...] = ()  # as many folds as end behind this line


class Body(Struct, frozen=True, kw_only=True):
    """A slice of a body as a page shows it."""

    form: str
    rows: tuple[BodyRow, ...]
    start: int
    after: int | None
    size: int
    is_json: bool


class HeaderRow(Struct, frozen=True, kw_only=True):
    """One header."""

    name: str
    value: str
    is_masked: bool = False


class HeaderPage(Struct, frozen=True, kw_only=True):
    """Some headers of a message, from number `start` on; `after` continues them."""

    rows: tuple[HeaderRow, ...]
    total: int
    start: int = 0
    after: int | None = None


def body_of(body: bytes, start: int = 0, *, form: Form = Form.PRETTY, reveal: bool = False) -> Body:
    """Return a slice of a body, small enough for a page."""
    most = SLICE
    found = layout(body, start, form=form, reveal=reveal)
    while most > 1_024 and _weight(found.lines) > _LARGEST:
        most //= 2
        found = layout(body, start, form=form, reveal=reveal, most=most)
    return Body(
        form=found.form,
        rows=tuple(_rows(found)),
        start=found.start,
        after=found.after,
        size=found.size,
        is_json=found.form is Form.PRETTY and found.size > 0,
    )


def _weight(lines: Sequence[BodyLine]) -> int:
    text = "".join([line.text + line.name for line in lines])
    return weight(text) + sum(2 * line.depth + _OF_LINE for line in lines)


def _rows(found: BodySlice) -> list[BodyRow]:
    rows: list[BodyRow] = []
    open_: list[bool] = []  # for each bracket that is open, whether it folds
    for line in found.lines:
        is_open = line.kind in _OPENING and line.text in {"{", "["}
        folds = is_open and line.fold and bool(line.members) and line.depth > 0
        closes = 0
        if is_open:
            open_.append(folds)
        elif line.kind is LineKind.END and open_:
            closes = int(open_.pop())
        rows.append(
            BodyRow(
                kind=line.kind,
                text=line.text,
                name=line.name,
                indent="  " * line.depth,
                folds=_folded(line) if folds else "",
                closes=(0,) * closes,
            )
        )
    if rows and any(open_):
        rows[-1] = structs.replace(rows[-1], closes=(*rows[-1].closes, *(0,) * sum(open_)))
    return rows


def _folded(line: BodyLine) -> str:
    count = line.members or 0
    return many(count, "value" if line.kind is LineKind.ARRAY else "member")


def headers_of(message: Message, start: int = 0, *, reveal: bool = False) -> HeaderPage:
    """Return headers of a message, without those that only say where it was found."""
    headers = unmarked(message).headers
    after = start + HEADERS
    return HeaderPage(
        rows=header_rows(headers[start:after], reveal=reveal),
        total=len(headers),
        start=start,
        after=after if after < len(headers) else None,
    )


def header_rows(headers: Headers, *, reveal: bool = False) -> tuple[HeaderRow, ...]:
    """Return headers as a page shows them."""
    return tuple(
        HeaderRow(
            name=shortened(clean(name), _NAME),
            value=shortened(header_text(name, value, reveal=reveal), _VALUE),
            is_masked=not reveal and is_secret_name(name),
        )
        for name, value in headers
    )
