"""Letters in the formats of other tools: CSV sheets and a failing test."""

import csv
import io
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Final, TextIO
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from deadletter.core.campaign import ReplayItem
from deadletter.core.errors import ConfigError, Refused
from deadletter.core.letter import LetterHead
from deadletter.core.message import Message
from deadletter.core.packing import masked, written
from deadletter.core.text import attempts_of, clean, spelled

COLUMNS: Final = (
    *("id", "state", "source", "partition", "message_id", "key", "business_key"),
    *("reason", "reason_text", "trouble", "code", "error_type", "error_text"),
    *("fingerprint", "attempts", "replays", "first_failed_at", "dead_at"),
    *("consumer", "version", "trace_id", "size"),
)
OUTCOME_COLUMNS: Final = (
    *("letter_id", "outcome", "to", "generation"),
    *("taken_at", "sent_at", "settled_at", "confirmed_at", "why"),
)
# A cell that begins with one of these is a formula to a spreadsheet; the wide
# ones are to some in Asian locales.
_FORMULA: Final = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 -- exactly these


async def write_sheet(pages: AsyncIterable[Sequence[LetterHead]], out: TextIO) -> int:
    """
    Write the heads of letters as CSV; return their number.

    Text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    table = csv.writer(out)
    table.writerow(COLUMNS)
    written = 0
    async for heads in pages:
        table.writerows([_cell(getattr(head, name)) for name in COLUMNS] for head in heads)
        written += len(heads)
    return written


async def outcome_sheet(pages: AsyncIterable[Sequence[ReplayItem]]) -> AsyncIterator[bytes]:
    """Yield the outcomes of a replay as CSV, page by page, with no formulas either."""
    yield _rows([OUTCOME_COLUMNS])
    async for items in pages:
        yield _rows([[_cell(getattr(one, name)) for name in OUTCOME_COLUMNS] for one in items])


def _rows(rows: Sequence[Sequence[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    text = value.isoformat() if hasattr(value, "isoformat") else spelled(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


_SHORT: Final = 10  # characters of an id that are enough to tell letters apart
_MOST: Final = 160  # characters of an error in a comment
_TEST: Final = '''\
"""Written by `dlq repro`; passes once this letter can be handled."""

from pathlib import Path

from {module} import {name}

# {about}
# {error}


def test_letter_{id}() -> None:
    with {name}.testing() as t:
        t.send_file(Path(__file__).with_name("{fixture}"))
        t.settled()
        t.no_letters()
'''


def repro(head: LetterHead, message: Message, app: str, *, reveal: bool = False) -> dict[str, str]:
    """
    Return the files of a test, by name: the message, and code that runs its handler.

    `app` is the application, as module:name. Secrets are masked unless `reveal` is set. The
    code contains nothing of the message.
    """
    module, name = _place(app)
    id_ = head.id[:_SHORT]
    fixture = f"letter_{id_}.json"
    about = f"{head.source}, died {head.dead_at:%Y-%m-%d %H:%M} UTC, {attempts_of(head.attempts)}"
    error = f"{head.error_name}: {head.error_text}" if head.error_type else head.reason
    test = _TEST.format(
        module=module,
        name=name,
        about=_comment(about),
        error=_comment(error),
        id=id_,
        fixture=fixture,
    )
    shown = message if reveal else masked(message)
    return {fixture: written(head.source, shown), f"test_letter_{id_}.py": test}


def pack_files(files: Mapping[str, str]) -> bytes:
    """Return files as one ZIP archive; the same files give the same bytes."""
    packed = io.BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(ZipInfo(name), text.encode(), ZIP_DEFLATED)
    return packed.getvalue()


def unpack_files(packed: bytes) -> dict[str, str]:
    """Return the files of an archive of `pack_files`."""
    try:
        with ZipFile(io.BytesIO(packed)) as archive:
            return {name: archive.read(name).decode() for name in archive.namelist()}
    except (BadZipFile, UnicodeDecodeError) as error:
        raise Refused(f"the server did not answer with a ZIP archive: {error}") from error


def _place(app: str) -> tuple[str, str]:
    module, _, name = app.partition(":")
    if name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return module, name
    raise ConfigError(f"{app!a} is not an application: use module:name, such as shop:app")


def _comment(text: str) -> str:
    """Return a text as one line that cannot end a comment."""
    line = clean(text).replace("\\n", " ")
    line = "".join(one if one.isprintable() else "?" for one in line)
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"
