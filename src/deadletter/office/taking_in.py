"""Letters from an archive into an office; what is there already stays as it is."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import By, DeadLetter
from deadletter.ports import LetterStore

from .batches import batched

_BATCH: Final = 100


class TakenIn(Struct, frozen=True, kw_only=True):
    """What became of the letters of an archive."""

    added: int = 0
    known: int = 0  # here already, and left untouched


async def take_in(
    store: LetterStore, letters: Iterable[DeadLetter], by: By, *, archive: str
) -> TakenIn:
    """
    Keep the letters that are not here yet; each says where it came from.

    Letters that are here already are left as they are, whatever the archive says;
    one whose id was used here for another body is kept apart. Taking in the same
    archive again, or after a crash half-way, is fine.
    """
    added = known = 0
    await store.record("import", archive, by, "begun")
    for batch in batched(letters, _BATCH):
        new = await _missing(store, batch)
        if new:
            kept = await store.keep(new)
            ids = tuple(one.id for one in kept)
            await store.note(ids, f"imported from {archive}", by)
        added += len(new)
        known += len(batch) - len(new)
    await store.record(
        "import", archive, by, f"{added} letters added, {known} known already"
    )
    return TakenIn(added=added, known=known)


async def _missing(
    store: LetterStore, letters: Sequence[DeadLetter]
) -> list[DeadLetter]:
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
