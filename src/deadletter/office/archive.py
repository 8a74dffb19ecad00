"""
Letters in a file: one JSON line each, behind a line that says what the file is.

Bodies and headers are base64, so that every byte survives. A file somebody else
wrote is believed nothing: see `open_archive`.
"""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Annotated, BinaryIO, Final

import msgspec
from msgspec import Meta, Struct, structs

from deadletter.core import attempts
from deadletter.core.editing import is_edit
from deadletter.core.errors import ConfigError
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import DeadLetter, LetterHead, State
from deadletter.ports import LetterStore

from .batches import whole_letters

FORMAT: Final = "deadletter-letters"
VERSION: Final = 1
LONGEST_LINE: Final = 64 * 1024 * 1024
_LONGEST_TEXT: Final = 64 * 1024
_LONGEST_NAME: Final = 1024
_MOST_ATTEMPTS: Final = 1_000
_LARGEST_NUMBER: Final = 1_000_000_000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class ArchiveHead(Struct, frozen=True, kw_only=True):
    """The first line of an archive."""

    format: str
    version: Annotated[int, Meta(ge=1)]
    exported_at: datetime
    query: str = ""


_encoder: Final = msgspec.json.Encoder()
_head_decoder: Final = msgspec.json.Decoder(ArchiveHead)
_decoder: Final = msgspec.json.Decoder(DeadLetter)


async def write_archive(
    store: LetterStore, ids: Sequence[str], out: BinaryIO, head: ArchiveHead
) -> int:
    """Write letters to a file; how many there were."""
    written = 0
    async for count, lines in archive_lines(store, ids, head):
        out.write(lines)
        written += count
    return written


async def archive_lines(
    store: LetterStore, ids: Sequence[str], head: ArchiveHead
) -> AsyncIterator[tuple[int, bytes]]:
    """An archive bit by bit: how many letters, and their lines."""
    yield 0, _encoder.encode(head) + b"\n"
    async for letters in whole_letters(store, ids):
        lines = (_encoder.encode(letter) + b"\n" for letter in letters)
        yield len(letters), b"".join(lines)


def open_archive(file: BinaryIO) -> Iterator[DeadLetter]:
    """
    The letters in a file, one by one, if it is an archive at all.

    Lines are bounded, types are checked, a letter's id must follow from where
    its message came from, and nothing claims to be under way. Whatever is wrong
    is a ConfigError with the number of the line.
    """
    _check_head(_line(file, 1))
    return _letters(file)


def _letters(file: BinaryIO) -> Iterator[DeadLetter]:
    number = 2
    while line := _line(file, number):
        if line.strip():
            yield _letter(line, number)
        number += 1


def _line(file: BinaryIO, number: int) -> bytes:
    line = file.readline(LONGEST_LINE + 1)
    if len(line) > LONGEST_LINE:
        size = LONGEST_LINE // (1024 * 1024)
        raise _wrong(number, f"it is longer than {size} MB")
    return line


def _check_head(line: bytes) -> None:
    try:
        head = _head_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(1, "this is not an archive made by `dlq export`") from error
    if head.format != FORMAT:
        raise _wrong(1, "this is not an archive made by `dlq export`")
    if head.version > VERSION:
        raise _wrong(
            1,
            f"the archive has format {head.version}, this version reads up to "
            f"{VERSION}: update deadletter",
        )


def _letter(line: bytes, number: int) -> DeadLetter:
    try:
        letter = _decoder.decode(line)
        story = attempts.read(letter.history)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(number, str(error)) from error
    problem = _problem(letter.head) or _problem_within(letter)
    if problem is None and len(story) > _MOST_ATTEMPTS:
        problem = f"it tells of more than {_MOST_ATTEMPTS:,} attempts"
    if problem is not None:
        raise _wrong(number, problem)
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
    names = (
        *(head.source, head.partition, head.consumer, head.version, head.code),
        *(head.message_id, head.error_type, head.fingerprint),
        *(head.key or "", head.business_key or "", head.owner or ""),
    )
    if any(len(name) > _LONGEST_NAME for name in names):
        return f"a name in it is longer than {_LONGEST_NAME:,} characters"
    if not head.source or _CONTROL.search(head.source):
        return "the name of its mailbox is empty or has control characters"
    if max(len(head.error_text), len(head.reason_text)) > _LONGEST_TEXT:
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


def _wrong(number: int, problem: str) -> ConfigError:
    return ConfigError(f"line {number:,}: {problem}")
