"""
Archives: files of letters that can prove they are complete.

JSON lines: the first describes the file, then one letter each with its own checksum, and the
last holds their number and a digest of every line before it. Bodies and header values are
base64, so that every byte survives.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Annotated, Any, BinaryIO, Final

import msgspec
from msgspec import Meta, Raw, Struct, structs

from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import DeadLetter, LetterHead, State, is_edit
from deadletter.core.text import each_text, many, shown, stored
from deadletter.ports import LetterStore

from .batches import whole_letters

FORMAT: Final = "deadletter-letters"
VERSION: Final = 2
UNCHECKED: Final = 1
"""The version that had neither checksums nor a last line."""

_LONGEST_END: Final = 1024


class ArchiveHead(Struct, frozen=True, kw_only=True):
    """The first line of an archive."""

    format: str = FORMAT
    version: Annotated[int, Meta(ge=1)] = VERSION
    exported_at: datetime
    engine: str = ""  # the kind that the messages were on
    query: str = ""


class ArchiveEnd(Struct, frozen=True, kw_only=True):
    """The last line of an archive."""

    end: str = FORMAT
    letters: Annotated[int, Meta(ge=0)]
    sha256: str  # of every byte before this line


_encoder: Final = msgspec.json.Encoder()
_end_decoder: Final = msgspec.json.Decoder(ArchiveEnd)


class Seal:
    """The writer of one archive's lines, which counts and hashes them."""

    def __init__(self) -> None:
        self._digest = sha256()
        self._letters = 0

    def head(self, head: ArchiveHead) -> bytes:
        """Return the first line."""
        return self._summed(_line(head))

    def letters(self, letters: Iterable[DeadLetter]) -> bytes:
        """Return the lines of some letters."""
        lines = [letter_line(letter) for letter in letters]
        self._letters += len(lines)
        return self._summed(b"".join(lines))

    def end(self) -> bytes:
        """Return the last line."""
        digest = self._digest.hexdigest()
        return _line(ArchiveEnd(letters=self._letters, sha256=digest))

    def _summed(self, lines: bytes) -> bytes:
        self._digest.update(lines)
        return lines


class SealCheck:
    """A check of an archive that arrives in pieces, without storing them."""

    def __init__(self) -> None:
        self._digest = sha256()
        self._before = self._digest.copy()  # of everything above the last line
        self._above = 0  # lines above the last one
        self._last = b""  # the last line, or the beginning of it
        self._ended = False

    def feed(self, piece: bytes) -> None:
        """Process the next piece."""
        parts = piece.split(b"\n")
        for part in (*(part + b"\n" for part in parts[:-1]), parts[-1]):
            if not part:
                continue
            if self._ended:
                self._before, self._last = self._digest.copy(), b""
                self._above += 1
            self._digest.update(part)
            self._last += part[: _LONGEST_END - len(self._last)]
            self._ended = part.endswith(b"\n")

    def letters(self) -> int:
        """Return the number of letters. Raises if the archive is incomplete."""
        end = read_end(self._last)
        if end is None or end.letters != self._above - 1 or end.sha256 != self._before.hexdigest():
            raise Unavailable(
                "the export broke off or was changed on its way: its last line is"
                " missing or does not match; export again"
            )
        return end.letters


async def write_archive(
    store: LetterStore, ids: Sequence[str], out: BinaryIO, head: ArchiveHead
) -> int:
    """Write letters to a file; return their number."""
    written = 0
    async for count, lines in archive_lines(store, ids, head):
        out.write(lines)
        written += count
    return written


async def archive_lines(
    store: LetterStore, ids: Sequence[str], head: ArchiveHead
) -> AsyncIterator[tuple[int, bytes]]:
    """Yield an archive in parts: the number of letters, and their lines."""
    seal = Seal()
    yield 0, seal.head(head)
    async for letters in whole_letters(store, ids):
        yield len(letters), seal.letters(letters)
    yield 0, seal.end()


def small_archives(
    letters: Iterable[DeadLetter], head: ArchiveHead, *, most: int
) -> Iterator[bytes]:
    """Yield complete archives of the letters, at least one, each of about `most` bytes."""
    rest, there_are_more = iter(letters), True
    while there_are_more:
        seal = Seal()
        lines, size, there_are_more = [seal.head(head)], 0, False
        for letter in rest:
            lines.append(seal.letters([letter]))
            size += len(lines[-1])
            if size >= most:
                there_are_more = True
                break
        yield b"".join([*lines, seal.end()])


def letter_line(letter: DeadLetter) -> bytes:
    """
    Return a letter as a line.

    JSON cannot hold lone surrogates, which letters of foreign brokers may contain. Such a
    letter is marked `escaped`, and its texts are escaped by `core.text.stored`.
    """
    more = b""
    try:
        told = _encoder.encode(letter)
    except UnicodeEncodeError:
        more = b'"escaped":true,'
        told = _encoder.encode(each_text(stored, msgspec.to_builtins(letter)))
    checksum = sha256(told).hexdigest().encode()
    return b'{"sha256":"' + checksum + b'",' + more + b'"letter":' + told + b"}\n"


def read_end(line: bytes) -> ArchiveEnd | None:
    """Return the last line of an archive, if it is one."""
    try:
        end = _end_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return end if end.end == FORMAT and line.endswith(b"\n") else None


def _line(value: Any) -> bytes:
    return _encoder.encode(value) + b"\n"


_LONGEST_TEXT: Final = 64 * 1024
_LONGEST_NAME: Final = 1024  # of what databases have in an index as a whole
_MOST_ATTEMPTS: Final = 1_000
_LARGEST_NUMBER: Final = 1_000_000_000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def problem_with(letter: DeadLetter) -> str | None:
    """
    Return why a letter is rejected; None if it is valid.

    Types were checked before. A letter's id must follow from its source and message id. Ids and
    keys of messages may have any length, as in sending.
    """
    if len(letter.story()) > _MOST_ATTEMPTS:
        return f"it tells of more than {_MOST_ATTEMPTS:,} attempts"
    return _problem(letter.head) or _problem_within(letter)


def imported(letter: DeadLetter) -> DeadLetter:
    """Return the letter in the form in which it is kept here."""
    head = letter.head
    # Nobody here is replaying it, and its size and revision are ours to say.
    state = State.PENDING if head.state is State.REPLAYING else head.state
    message, original = letter.message, letter.original
    return structs.replace(
        letter,
        head=structs.replace(head, state=state, size=len(message.body), revision=0),
        message=structs.replace(message, lineage=None),
        original=original and structs.replace(original, lineage=None),
    )


def _problem(head: LetterHead) -> str | None:
    names = (head.source, head.partition, head.fingerprint)
    if any(len(name) > _LONGEST_NAME for name in names):
        return f"a name in it is longer than {_LONGEST_NAME:,} characters"
    if not head.source or _CONTROL.search(head.source):
        return "the name of its mailbox is empty or has control characters"
    texts = (
        *(head.error_text, head.reason_text, head.error_type),
        *(head.consumer, head.version, head.code),
    )
    if any(len(text) > _LONGEST_TEXT for text in texts):
        return f"a text in it is longer than {_LONGEST_TEXT:,} characters"
    numbers = (head.attempts, head.replays)
    if not all(0 <= number <= _LARGEST_NUMBER for number in numbers):
        return "its attempts or replays are not a count"
    return None


def _problem_within(letter: DeadLetter) -> str | None:
    head, message = letter.head, letter.message
    times = (head.first_failed_at, head.dead_at, message.sent_at)
    more = (message.expires_at, letter.first_received_at)
    if any(time is not None and time.tzinfo is None for time in (*times, *more)):
        return "a time in it has no time zone"
    if message.id != head.message_id:
        return "it holds another message than its head says"
    if not is_edit(letter.as_it_died, message):
        return "it was edited where no message can be edited"
    if head.id != _rightful_id(letter):
        return "its id does not belong to its message"
    return None


def _rightful_id(letter: DeadLetter) -> str:
    head = letter.head
    twist = body_digest(letter.as_it_died.body) if head.conflict else b""
    return letter_id(head.source, head.partition, head.message_id, twist)


# Archives read back. A file somebody else wrote is believed nothing.
# `check` reads all of it before anything is taken: `read_letters` gives the letters
# that are intact. Both hold one line at a time.

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
    """An incomplete or changed archive; nothing of it was imported."""

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
    """Read a whole archive; return the number of intact letters, and the problems."""
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
    """Yield the intact letters of an archive, in the form in which they can be kept."""
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
    """The lines of a file, bounded, counted and hashed."""

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
        """Return the next line; empty at the end."""
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
    """Return the version in the first line, and what is wrong with it."""
    try:
        head = _head_decoder.decode(lines.next())
    except _UNREADABLE:
        head = None
    if head is None or head.format != FORMAT:
        return 0, Problem(line=1, text="this is not the first line of an archive by `dlq export`")
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
    """Return the id of a letter that is otherwise invalid."""
    try:
        identity = _id_decoder.decode(told).head.id
    except _UNREADABLE:
        return ""
    return identity if identity.isascii() and identity.isalnum() else ""


def _at_end(lines: _Lines, end: ArchiveEnd, seen: int, *, sound: bool) -> Iterator[Problem]:
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
        yield Problem(line=number + 1, text="there are more lines behind the end of the archive")


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
