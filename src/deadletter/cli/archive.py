"""dlq export, dlq import: letters into a file and back."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal

from cyclopts import Parameter

from deadletter.core.errors import ConfigError, Conflict
from deadletter.office.archive import (
    FORMAT,
    VERSION,
    ArchiveHead,
    open_archive,
    write_archive,
)
from deadletter.office.sheet import write_sheet
from deadletter.office.taking_in import take_in
from deadletter.system import SystemClock

from .desk import AtDesk, Office
from .options import AtMost, Flag, Reason
from .times import many

STANDARD: Final = "-"


async def export(
    *query: str,
    out: Annotated[
        str, Parameter(name=["--out", "-o"], allow_leading_hyphen=True)
    ] = STANDARD,
    format_: Annotated[Literal["jsonl", "csv"], Parameter(name="--format")] = "jsonl",
    limit: AtMost = None,
    force: Flag = False,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Write letters into a file: whole ones as JSON lines, or their heads as CSV.

    A JSON lines archive holds every byte, secrets too, and can be imported again.
    In CSV, text that a spreadsheet would run as a formula gets an apostrophe.

    Args:
        query: In the search language; nothing is everything.
        out: The file; - is standard output.
        format_: jsonl or csv.
        limit: At most so many letters.
        force: Overwrite the file if it is there.
        reason: Why; goes into the audit.
    """
    text = " ".join(query)
    async with desk.office() as office:
        with _writing(out, force=force) as file:
            write = _as_sheet if format_ == "csv" else _as_archive
            written = await write(office, text, file, limit)
        detail = f"{written} letters as {format_}: {text or 'everything'}"
        await office.store.record("export", out, desk.by(reason), detail)
    if out != STANDARD and desk.as_json:
        desk.document({"file": out, "letters": written})
    elif out != STANDARD:
        desk.tell(f"{many(written, 'letter')} written to {out}.")


async def import_(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Take in the letters of an archive that `dlq export` wrote.

    Letters that are here already are left as they are. Where a line is wrong it
    stops; what stands above that line was taken in.

    Args:
        file: The archive; - is standard input.
        reason: Why; goes into the audit.
    """
    name = "standard input" if file == STANDARD else Path(file).name
    with _reading(file) as archive:
        with _naming(name):
            letters = open_archive(archive)
        async with desk.office(make=True) as office:
            with _naming(name):
                result = await take_in(
                    office.store, letters, desk.by(reason), archive=name
                )
    if desk.as_json:
        desk.document(result)
        return
    desk.tell(f"{many(result.added, 'letter')} taken in from {name}.")
    if result.known:
        desk.tell(f"{many(result.known, 'letter')} left as it is: here already.")


async def _as_sheet(
    office: Office, query: str, file: BinaryIO, limit: int | None
) -> int:
    sheet = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        return await write_sheet(office.letters.select(query, limit=limit), sheet)
    finally:
        sheet.detach()


async def _as_archive(
    office: Office, query: str, file: BinaryIO, limit: int | None
) -> int:
    ids = await office.letters.freeze(query, limit=limit)
    now = SystemClock().now()
    head = ArchiveHead(format=FORMAT, version=VERSION, exported_at=now, query=query)
    return await write_archive(office.store, ids, file, head)


@contextmanager
def _naming(archive: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{archive}, {error}") from error


@contextmanager
def _writing(out: str, *, force: bool) -> Iterator[BinaryIO]:
    if out == STANDARD:
        if sys.stdout.isatty():
            raise ConfigError(
                "letters hold bytes that a terminal may obey: name a file with --out"
            )
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # Nobody else may read it, nothing is followed, and nothing is overwritten
    # unasked.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    flags |= os.O_TRUNC if force else os.O_EXCL
    try:
        descriptor = os.open(out, flags, 0o600)
    except FileExistsError as error:
        raise Conflict(f"{out} is there already: --force overwrites it") from error
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        yield file


@contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 -- closed below
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from error
    with file:
        yield file
