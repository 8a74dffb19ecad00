"""dlq export, dlq import: letters into a file and back."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal

from cyclopts import Parameter

from deadletter.core.errors import ConfigError

from .desk import AtDesk, Desk
from .exit_codes import ExitCode
from .files import new_file, readable
from .options import AtMost, Flag, Reason
from .streams import standard_input
from .ui import many, reading, writing

STANDARD: Final = "-"


async def export(
    *query: str,
    out: Annotated[str, Parameter(name=["--out", "-o"], allow_leading_hyphen=True)] = STANDARD,
    format_: Annotated[Literal["jsonl", "csv"], Parameter(name="--format")] = "jsonl",
    limit: AtMost = None,
    force: Flag = False,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Write letters into a file: whole ones as JSON lines, or their heads as CSV.

    A JSON lines archive holds every byte, secrets too, and can be imported again. It
    has a checksum for each letter, and a last line with their number and a digest of
    all of it. The file appears under its name only when all of it is on the disk.

    In CSV, text that a spreadsheet would run as a formula gets an apostrophe.

    Args:
        query: In the search language; nothing is everything.
        out: The file; - is standard output.
        format_: jsonl or csv.
        limit: The maximum number of letters.
        force: Overwrite the file if it is there.
        reason: Why; recorded in the audit.
    """
    text = " ".join(query)
    async with desk.office() as office:
        with _writing(out, force=force) as to, writing(desk, "writing", to) as file:
            write = office.sheet if format_ == "csv" else office.export
            written = await write(text, file, desk.by(reason), limit=limit, name=out)
    if out != STANDARD and desk.as_json:
        desk.document({"file": out, "letters": written})
    elif out != STANDARD:
        desk.tell(f"{many(written, 'letter')} written to {out}.")


async def import_(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    salvage: Flag = False,
    reason: Reason = "",
    desk: AtDesk,
) -> int:
    """
    Take in the letters of an archive that `dlq export` wrote.

    All of it is checked first. If a letter was changed, or letters are missing,
    nothing is taken in, and the lines that are wrong are named. Letters that are here
    already are left as they are; importing the same archive again is fine.

    Args:
        file: The archive; - is standard input.
        salvage: Take the intact letters of a damaged archive, or all of one that an
            older version wrote without checksums. The exit code is 6 if something
            was wrong.
        reason: Why; recorded in the audit.
    """
    name = "standard input" if file == STANDARD else Path(file).name
    with _reading(file) as given, readable(given) as archive:
        times = 3 if desk.server and not salvage else 2  # checked there as well
        async with desk.office(make=True) as office:
            with (
                _naming(name),
                _telling_notes(desk),
                reading(desk, "taking in", archive, times=times) as letters,
            ):
                result = await office.import_(letters, desk.by(reason), name=name, salvage=salvage)
    if desk.as_json:
        desk.document(result)
    else:
        desk.tell(f"{many(result.added, 'letter')} taken in from {name}.")
        if result.known:
            desk.tell(f"{many(result.known, 'letter')} left alone: here already.")
    for problem in result.problems:
        desk.warn(str(problem))
    more = result.wrong - len(result.problems)
    if more:
        desk.warn(f"... and {many(more, 'problem')} more")
    return ExitCode.CHECK_FAILED if result.wrong else ExitCode.OK


@contextmanager
def _telling_notes(desk: Desk) -> Iterator[None]:
    """Say what was done before an error or an interrupt, however that ends us."""
    try:
        yield
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            desk.warn(note)
        raise


@contextmanager
def _naming(archive: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{archive}: {error}") from error


@contextmanager
def _writing(out: str, *, force: bool) -> Iterator[BinaryIO]:
    if out == STANDARD:
        if sys.stdout.isatty():
            raise ConfigError("letters hold bytes that a terminal may obey: name a file with --out")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with new_file(out, force=force) as file:
        yield file


@contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        yield standard_input()
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 -- closed below
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from error
    with file:
        yield file
