"""
Archives read back. A file somebody else wrote is believed nothing.

`check` reads all of it before anything is taken: `read_letters` gives the letters
that are intact. Both hold one line at a time.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import chain
from typing import BinaryIO, Final

import msgspec
from msgspec import Raw, Struct

from deadletter.core.counts import many
from deadletter.core.errors import ConfigError
from deadletter.core.escaping import each_text, shown
from deadletter.core.letter import DeadLetter

from .archive import FORMAT, UNCHECKED, VERSION, ArchiveEnd, ArchiveHead, read_end
from .archive_letter import imported, problem_with

LONGEST_LINE: Final = 3 * 1024**3  # two bodies of 1 GB, the most a database holds
MOST_NAMED: Final = 20
_PIECE: Final = 1024 * 1024


class Problem(Struct, frozen=True, kw_only=True):
    """Something wrong with an archive."""

    line: int
    text: str
    letter: str = ""  # its id, where that can be read

    def __str__(self) -> str:
        letter = f", letter {self.letter}" if self.letter else ""
        return f"line {self.line:,}{letter}: {self.text}"


class Checkup(Struct, frozen=True, kw_only=True):
    """The result of checking an archive."""

    intact: int  # letters
    wrong: int = 0
    problems: tuple[Problem, ...] = ()  # the first of them


Reject = Callable[[DeadLetter], str | None]


class Damaged(ConfigError):
    """An archive that is not whole; nothing of it was taken in."""

    def __init__(self, checkup: Checkup) -> None:
        self.checkup = checkup
        super().__init__(_told(checkup))


class _Line(Struct, frozen=True):
    sha256: str
    letter: Raw
    escaped: bool = False


class _Identity(Struct, frozen=True):
    id: str = ""


class _Head(Struct, frozen=True):
    head: _Identity = _Identity()


_head_decoder: Final = msgspec.json.Decoder(ArchiveHead)
_line_decoder: Final = msgspec.json.Decoder(_Line)
_letter_decoder: Final = msgspec.json.Decoder(DeadLetter)
_id_decoder: Final = msgspec.json.Decoder(_Head)
_CHECKED: Final = b'{"sha256":'  # how the line of a letter begins
_BARE: Final = b'{"head":'  # ...in archives without checksums
_LETTERS: Final = (_CHECKED, _BARE)
_END: Final = b'{"end":'
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def check(file: BinaryIO, reject: Reject | None = None) -> Checkup:
    """Read all of an archive; return how many letters are intact, and what is not."""
    intact = wrong = 0
    named: list[Problem] = []
    for found in _read(file, reject):
        if isinstance(found, DeadLetter):
            intact += 1
            continue
        wrong += 1
        if len(named) < MOST_NAMED:
            named.append(found)
    return Checkup(intact=intact, wrong=wrong, problems=tuple(named))


def read_letters(file: BinaryIO, reject: Reject | None = None) -> Iterator[DeadLetter]:
    """Give the intact letters of an archive, one by one, as they can be kept."""
    for found in _read(file, reject):
        if isinstance(found, DeadLetter):
            yield imported(found)


def _read(file: BinaryIO, reject: Reject | None) -> Iterator[DeadLetter | Problem]:
    lines = _Lines(file)
    version, problem = _version(lines)
    if problem is not None:
        yield problem
        if version > VERSION:
            return
    first = [lines.line] if lines.line.startswith(_LETTERS) else []
    seen, sound = 0, problem is None
    for line in chain(first, lines):
        end = read_end(line) if line.startswith(_END) else None
        if end is not None:
            yield from _at_end(lines, end, seen, sound=sound)
            return
        if not line.strip() and not lines.too_long and version == UNCHECKED:
            continue
        found = _letter(line, lines, version, reject)
        seen += 1
        sound = sound and isinstance(found, DeadLetter)
        yield found
    if version != UNCHECKED:
        above = many(seen, "letter stands", "letters stand")
        yield Problem(
            line=lines.number + 1,
            text=f"the last line is missing; {above} above it, and how many were cut"
            " off is not known",
        )


class _Lines:
    """The lines of a file, bounded, counted and summed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = sha256()
        self.above = ""  # the digest of everything above this line
        self.number = 0
        self.line = b""
        self.too_long = False

    def __iter__(self) -> Iterator[bytes]:
        while line := self.next():
            yield line

    def next(self) -> bytes:
        """Return the next line, or nothing at the end."""
        line = self._file.readline(LONGEST_LINE + 1)
        if not line:
            return b""
        self.above = self.digest.hexdigest()
        self.digest.update(line)
        self.number += 1
        self.too_long = len(line) > LONGEST_LINE
        while self.too_long and line and not line.endswith(b"\n"):
            line = self._file.readline(_PIECE)
            self.digest.update(line)
        self.line = line
        return line or b"\n"


def _version(lines: _Lines) -> tuple[int, Problem | None]:
    """Return the version that the first line names; and what is wrong with it."""
    try:
        head = _head_decoder.decode(lines.next())
    except _UNREADABLE:
        head = None
    if head is None or head.format != FORMAT:
        return 0, Problem(
            line=1, text="this is not the first line of an archive by `dlq export`"
        )
    if head.version == VERSION:
        return VERSION, None
    if head.version == UNCHECKED:
        text = (
            "an older version wrote this archive, without checksums: nobody can tell"
            " whether letters in it were changed or are missing"
        )
    else:
        text = (
            f"the archive has version {head.version}, and versions up to {VERSION} can"
            " be read: update deadletter"
        )
    return head.version, Problem(line=1, text=text)


def _letter(
    line: bytes, lines: _Lines, version: int, reject: Reject | None
) -> DeadLetter | Problem:
    def wrong(text: str, letter: str = "") -> Problem:
        return Problem(line=lines.number, text=text, letter=letter)

    if lines.too_long:
        return wrong(f"it is longer than {LONGEST_LINE:,} bytes")
    if version == UNCHECKED or (not version and line.startswith(_BARE)):
        told, escaped = Raw(line), False
    else:
        try:
            read = _line_decoder.decode(line)
        except _UNREADABLE as error:
            cut_off = "" if line.endswith(b"\n") else "; the file was cut off here"
            return wrong(f"it cannot be read: {error}{cut_off}")
        told, escaped = read.letter, read.escaped
        if sha256(told).hexdigest() != read.sha256:
            text = "its checksum does not match: it was changed since it was exported"
            return wrong(text, _id_in(told))
    try:
        letter = _decoded(told, escaped=escaped)
        text = problem_with(letter) or (reject and reject(letter)) or ""
    except _UNREADABLE as error:
        return wrong(f"it is not a letter: {error}", _id_in(told))
    return wrong(text, _id_in(told)) if text else letter


def _decoded(told: Raw, *, escaped: bool) -> DeadLetter:
    if not escaped:
        return _letter_decoder.decode(told)
    plain = msgspec.json.decode(told)
    return msgspec.convert(each_text(shown, plain), DeadLetter)


def _id_in(told: Raw) -> str:
    """Return the id of a letter that is otherwise not believed."""
    try:
        identity = _id_decoder.decode(told).head.id
    except _UNREADABLE:
        return ""
    return identity if identity.isascii() and identity.isalnum() else ""


def _at_end(
    lines: _Lines, end: ArchiveEnd, seen: int, *, sound: bool
) -> Iterator[Problem]:
    number, digest = lines.number, lines.above
    if end.letters != seen:
        sound = False
        were = many(end.letters, "letter was", "letters were")
        text = f"{were} exported, {many(seen, 'is', 'are')} here"
        yield Problem(line=number, text=text)
    if sound and end.sha256 != digest:
        yield Problem(
            line=number,
            text="the digest of the lines above does not match: lines were changed,"
            " exchanged or moved since they were exported",
        )
    if any(line.strip() for line in lines):
        yield Problem(
            line=number + 1, text="there are more lines behind the end of the archive"
        )


def _told(checkup: Checkup) -> str:
    more = checkup.wrong - len(checkup.problems)
    flags = "--salvage, over HTTP salvage=true"
    rest = f"; or take the {many(checkup.intact, 'intact letter')}: {flags}"
    wrong = many(checkup.wrong, "problem")
    told = [
        f"the archive is damaged ({wrong}), nothing was taken in:",
        *(f"  {problem}" for problem in checkup.problems),
        *([f"  ... and {more:,} more"] if more else []),
        f"export again{rest if checkup.intact else ''}",
    ]
    return "\n".join(told)
