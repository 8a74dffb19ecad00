import csv
import io
from collections.abc import AsyncIterator

import pytest

from deadletter.core.letter import LetterHead
from deadletter.office.exports import COLUMNS, write_sheet
from office.making import make_letter


async def pages(*heads: LetterHead) -> AsyncIterator[tuple[LetterHead, ...]]:
    yield heads


FORMULAS = [
    "=1+1",
    '=HYPERLINK("http://evil","x")',
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "＝1",  # noqa: RUF001 -- the wide one
]


@pytest.mark.parametrize("text", FORMULAS)
async def test_no_cell_is_a_formula(text: str) -> None:
    out = io.StringIO()
    head = make_letter(error_text=text, error_type=text, reason_text=text, consumer=text).head

    await write_sheet(pages(head), out)

    _, row = csv.reader(io.StringIO(out.getvalue(), newline=""))
    cells = dict(zip(COLUMNS, row, strict=True))
    for name in ("error_text", "error_type", "reason_text", "consumer"):
        assert cells[name] == f"'{text}"


async def test_a_sheet_has_a_line_per_letter() -> None:
    out = io.StringIO()
    head = make_letter(error_text='says "no", twice\nand more').head

    written = await write_sheet(pages(head), out)

    names, row = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert written == 1
    cells = dict(zip(names, row, strict=True))
    assert cells["id"] == head.id
    assert cells["attempts"] == "2"
    assert cells["error_text"] == head.error_text
    assert cells["dead_at"] == head.dead_at.isoformat()
