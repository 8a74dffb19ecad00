"""
Letters in a file that can prove it is whole.

JSON lines: the first says what the file is, then one letter each with its own
checksum, and the last holds their number and a digest of every line before it.
Bodies and header values are base64, so that every byte survives.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, BinaryIO, Final

import msgspec
from msgspec import Meta, Struct

from deadletter.core.errors import Unavailable
from deadletter.core.escaping import each_text, stored
from deadletter.core.letter import DeadLetter
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
    """Make the lines of one archive, counting and summing them."""

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
    """Check an archive that arrives in pieces, without holding them."""

    def __init__(self) -> None:
        self._digest = sha256()
        self._before = self._digest.copy()  # of everything above the last line
        self._above = 0  # lines above the last one
        self._last = b""  # the last line, or the beginning of it
        self._ended = False

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
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
        """Return how many letters there were; raises if the archive is not whole."""
        end = read_end(self._last)
        if (
            end is None
            or end.letters != self._above - 1
            or end.sha256 != self._before.hexdigest()
        ):
            raise Unavailable(
                "the export broke off or was changed on its way: its last line is"
                " missing or does not match; export again"
            )
        return end.letters


async def write_archive(
    store: LetterStore, ids: Sequence[str], out: BinaryIO, head: ArchiveHead
) -> int:
    """Write letters to a file; return how many there were."""
    written = 0
    async for count, lines in archive_lines(store, ids, head):
        out.write(lines)
        written += count
    return written


async def archive_lines(
    store: LetterStore, ids: Sequence[str], head: ArchiveHead
) -> AsyncIterator[tuple[int, bytes]]:
    """Make an archive bit by bit: how many letters, and their lines."""
    seal = Seal()
    yield 0, seal.head(head)
    async for letters in whole_letters(store, ids):
        yield len(letters), seal.letters(letters)
    yield 0, seal.end()


def small_archives(
    letters: Iterable[DeadLetter], head: ArchiveHead, *, most: int
) -> Iterator[bytes]:
    """Make whole archives of the letters, at least one, each of about `most` bytes."""
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

    Lone surrogates, which letters of foreign brokers may hold, are no text to JSON.
    A letter with some says `escaped`, and its texts are those of `core.escaping`.
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
