"""
dlq export, import and repro: letters as files.

A file appears under its name only when it is complete.
"""

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal

from cyclopts import Parameter

from deadletter.core.errors import ConfigError, Conflict, Unavailable
from deadletter.wiring.engines import default_settings

from .app import ExitCode
from .desk import AtDesk, Desk
from .options import AtMost, Flag, Reason, letter_id
from .streams import standard_input
from .ui import many, reading, writing

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})


@contextmanager
def new_file(out: str | Path, *, force: bool) -> Iterator[BinaryIO]:
    """
    Write a file that appears under its name only when it is complete.

    Until it is on the disk, the file has a temporary name in the same directory. Only
    its owner can read it. An existing file is replaced only with `force`. Links are not
    followed; devices and pipes are written to directly.
    """
    path = Path(out)
    if _is_special(path, force=force):
        with path.open("wb") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name[:100]}.{os.urandom(6).hex()}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _name(temporary, path, force=force)
        _sync(path.parent)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise Unavailable(
            f"cannot write {out}: {error.strerror}; no file of that name was created"
        ) from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


@contextmanager
def readable(file: BinaryIO) -> Iterator[BinaryIO]:
    """Yield a file that can be read twice, with the same bytes; copy a pipe first."""
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile(prefix="dlq-") as copy:
        try:
            shutil.copyfileobj(file, copy, 1024 * 1024)
        except OSError as error:
            raise ConfigError(
                f"cannot store the input in {tempfile.gettempdir()}: {error.strerror};"
                " set TMPDIR to another directory"
            ) from error
        copy.seek(0)
        yield copy


def _is_special(path: Path, *, force: bool) -> bool:
    """Return whether the path is a device or pipe; raise if it must not be written."""
    if path.is_symlink() and force:
        raise ConfigError(f"cannot write {path}: it is a symbolic link; name its target")
    if not path.exists() and not path.is_symlink():
        return False
    if not force:
        raise Conflict(f"{path} already exists: overwrite it with --force")
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a directory")
    return not path.is_file()


def _name(temporary: Path, path: Path, *, force: bool) -> None:
    if not force:
        try:
            os.link(temporary, path)  # unlike a rename, a link never replaces a file
        except FileExistsError as error:
            raise Conflict(f"{path} already exists: overwrite it with --force") from error
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            return
    temporary.replace(path)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    Write letters to a file: complete as JSON lines, or as a table in CSV.

    A JSON lines archive is complete, includes secrets, and can be imported again. It has
    a checksum for each letter, and a last line with their number and a digest of the
    whole file. The file appears under its name only when it is complete.

    In CSV, text that a spreadsheet would run as a formula gets an apostrophe.

    Args:
        query: A search (default: all letters).
        out: The file; - means standard output.
        format_: jsonl or csv.
        limit: The maximum number of letters.
        force: Overwrite an existing file.
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
    Import the letters of an archive that `dlq export` wrote.

    The whole archive is checked first. If letters were changed or are missing, nothing is
    imported and the wrong lines are listed. Existing letters do not change, so an archive
    can be imported again.

    Args:
        file: The archive; - means standard input.
        salvage: Import the intact letters of a damaged archive, or all letters of an
            archive without checksums. The exit code is 6 if letters were damaged.
        reason: Why; recorded in the audit.
    """
    name = "standard input" if file == STANDARD else Path(file).name
    with _reading(file) as given, readable(given) as archive:
        times = 3 if desk.server and not salvage else 2  # the server checks it as well
        async with desk.office(make=True) as office:
            with (
                _naming(name),
                _notes_printed(desk),
                reading(desk, "importing", archive, times=times) as letters,
            ):
                result = await office.import_(letters, desk.by(reason), name=name, salvage=salvage)
    if desk.as_json:
        desk.document(result)
    else:
        desk.tell(f"{many(result.added, 'letter')} imported from {name}.")
        if result.known:
            desk.tell(f"{many(result.known, 'letter')} not changed: already here.")
    for problem in result.problems:
        desk.warn(str(problem))
    more = result.wrong - len(result.problems)
    if more:
        desk.warn(f"... and {many(more, 'problem')} more")
    return ExitCode.CHECK_FAILED if result.wrong else ExitCode.OK


@contextmanager
def _notes_printed(desk: Desk) -> Iterator[None]:
    """Print the notes of an error or interrupt: what was done before it."""
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
            raise ConfigError(
                "letters may contain control sequences of the terminal: name a file with --out"
            )
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


_HERE: Final = Path("tests")


async def repro(
    letter: str,
    app: str | None = None,
    /,
    *,
    into: Path = _HERE,
    original: Flag = False,
    reveal: Flag = False,
    force: Flag = False,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Write a pytest test that passes the message of a letter to its handler.

    The test fails as the message did, until the handler is fixed. The message is written
    to a file beside it, with likely secrets masked.

    Args:
        letter: The id of the letter, or at least the first 6 characters of it.
        app: The App, as module:name (default: DLQ_APP, or `app` in deadletter.toml).
        into: The directory of the tests; it is created if it does not exist.
        original: Use the original message of an edited letter.
        reveal: Do not mask secrets. Keep the file private.
        force: Overwrite existing files.
        reason: Why; recorded in the audit with --reveal.
    """
    app = app or default_settings().app
    if app is None:
        raise ConfigError("name the App, as in: dlq repro ID shop:app")
    async with desk.office() as office:
        files = await office.letters.repro(
            letter_id(letter), app, desk.by(reason), original=original, reveal=reveal
        )
    _write(into, files, force=force)
    *_, test = files
    if desk.as_json:
        desk.document({"files": [str(into / name) for name in files]})
        return
    desk.tell(f"{' and '.join(str(into / name) for name in files)} written.")
    desk.hint(f"The test fails until the handler is fixed: pytest {into / test}")


def _write(into: Path, files: dict[str, str], *, force: bool) -> None:
    existing = [name for name in files if (into / name).exists()]
    if existing and not force:  # checked before any file is written
        raise Conflict(f"{into / existing[0]} already exists: overwrite it with --force")
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot create {into}: {error.strerror}") from error
    for name, text in files.items():
        with new_file(into / name, force=force) as file:
            file.write(text.encode())
