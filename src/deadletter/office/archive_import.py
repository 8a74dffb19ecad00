"""
Import of letters from an archive; letters that exist stay as they are.

All of an archive is checked before the first letter is imported. A crash half-way leaves some
letters in; importing the same archive again adds the others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, Final

from msgspec import Struct

from deadletter.core.errors import Conflict
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import By, DeadLetter
from deadletter.core.text import many
from deadletter.ports import LetterStore

from .archive import Checkup, Damaged, Problem, Reject, check, read_letters

_BATCH: Final = 100
_BYTES: Final = 16 * 1024 * 1024  # of message bodies held at once


class TakenIn(Struct, frozen=True, kw_only=True):
    """The result of an import."""

    added: int = 0
    known: int = 0  # here already, and left untouched
    wrong: int = 0  # problems of a damaged archive whose intact letters were taken
    problems: tuple[Problem, ...] = ()  # the first of them


def unchanged(letter: DeadLetter) -> DeadLetter:
    """Return the letter as it is."""
    return letter


async def take_in_archive(
    store: LetterStore,
    file: BinaryIO,
    by: By,
    *,
    archive: str,
    salvage: bool = False,
    dry_run: bool = False,
    reject: Reject | None = None,
    change: Callable[[DeadLetter], DeadLetter] = unchanged,
) -> TakenIn:
    """
    Check an archive, then keep its letters. Raises `Damaged` if it is damaged.

    With `salvage`, the intact letters of a damaged archive are kept. With `dry_run`, it is only
    checked. `file` is read twice. `reject` returns why a letter is not imported, `change` is
    applied to those that are.
    """
    checkup = checked(file, salvage=salvage, reject=reject)
    if dry_run:
        return TakenIn(wrong=checkup.wrong, problems=checkup.problems)
    letters = map(change, read_letters(file, reject))
    taken = await take_in(store, letters, by, archive=archive)
    if taken.added + taken.known != checkup.intact:
        raise Conflict("the archive changed while it was read: import it again")
    return TakenIn(
        added=taken.added, known=taken.known, wrong=checkup.wrong, problems=checkup.problems
    )


def checked(file: BinaryIO, *, salvage: bool = False, reject: Reject | None = None) -> Checkup:
    """Check a whole archive, and rewind it."""
    checkup = check(file, reject)
    if checkup.wrong and not salvage:
        raise Damaged(checkup)
    file.seek(0)
    return checkup


async def take_in(
    store: LetterStore, letters: Iterable[DeadLetter], by: By, *, archive: str
) -> TakenIn:
    """
    Keep the letters that do not exist here yet.

    Letters that exist are left as they are, whatever the archive says. A letter whose id was
    used here for another body is kept apart. Importing the same letters again, or after a crash
    half-way, is safe.
    """
    added = known = 0
    await store.record("import", archive, by, "begun")
    try:
        for batch in _batches(letters):
            new = await _missing(store, batch)
            if new:
                kept = await store.keep(new)
                ids = tuple(one.id for one in kept)
                await store.note(ids, f"imported from {archive}", by)
            added += len(new)
            known += len(batch) - len(new)
    except BaseException as error:
        error.add_note(taken_before(added, known))
        raise
    await store.record(
        "import", archive, by, f"{many(added, 'letter')} added, {known} known already"
    )
    return TakenIn(added=added, known=known)


def taken_before(added: int, known: int) -> str:
    """Return what was imported of an archive before its import stopped."""
    taken = many(added, "letter was", "letters were")
    rest = "import the same archive again to take in the rest"
    return f"{taken} taken in before, {known:,} were here already: {rest}"


def _batches(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    batch: list[DeadLetter] = []
    size = 0
    for letter in letters:
        batch.append(letter)
        size += len(letter.message.body)
        if len(batch) >= _BATCH or size >= _BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def _missing(store: LetterStore, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    ids = {letter.id: letter for letter in letters}
    ids |= {_id_apart(letter): letter for letter in letters}
    bodies = {one.id: one.as_it_died.body for one in await store.get(tuple(ids))}
    new: dict[str, DeadLetter] = {}
    for letter in letters:
        there = bodies.get(letter.id)
        apart = _id_apart(letter)
        if there is None:
            new.setdefault(letter.id, letter)
        elif there != letter.as_it_died.body and apart not in bodies:
            new.setdefault(apart, letter)
    return list(new.values())


def _id_apart(letter: DeadLetter) -> str:
    head = letter.head
    twist = body_digest(letter.as_it_died.body)
    return letter_id(head.source, head.partition, head.message_id, twist)
