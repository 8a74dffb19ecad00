"""Transactions on letters: move, note, edit, purge, expire."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from deadletter.core.audit import act
from deadletter.core.grouping import blanked
from deadletter.core.ids import body_digest
from deadletter.core.letter import By, Edit, State, check_revision, edited, no_letter, sources_of
from deadletter.core.letter_filing import check_purge
from deadletter.core.packing import pack_rest
from deadletter.core.seals import EDITED
from deadletter.ports.letters import Move, given_up

from .operations import Brief, LetterOperations, Revision, Shifts
from .outcomes import set_states, settle


async def move(store: LetterOperations, move: Move, by: By, now: datetime) -> list[str]:
    """
    Move the letters that are in one of the old states; return their ids.

    Campaigns stop waiting for the copies of letters that were `replaying`.
    """
    allowed = move.old & sources_of(move.new)
    moving = [one for one in await store.find_briefs(move.ids) if one.state in allowed]
    if not moving:
        return []
    await set_states(store, dict.fromkeys(moving, move.new))
    await store.append_audit(
        [act("move", b.id, by, at=now, detail=f"{b.state} to {move.new}") for b in moving]
    )
    await settle(store, given_up((b.id, b.state, b.replays) for b in moving), now)
    return [one.id for one in moving]


async def note(
    store: LetterOperations, ids: Sequence[str], text: str, by: By, now: datetime
) -> list[str]:
    """Write a note into the audit of letters; return the ids of those that exist."""
    found = [one.id for one in await store.find_briefs(ids)]
    await store.append_audit([act("note", id_, by, at=now, detail=text) for id_ in found])
    return found


async def edit(store: LetterOperations, edit: Edit, now: datetime) -> int:
    """Put another message into a letter; return its new revision."""
    found = await store.find_letter(edit.id)
    if found is None:
        raise no_letter(edit.id)
    seq, letter = found
    check_revision(letter.head, edit.revision)
    head, detail = edited(letter.head, letter.message, edit.message)
    rest = pack_rest(replace(letter, message=edit.message))
    digest = body_digest(edit.message.body)
    seal = store.sealing.message(head, digest, rest, EDITED)
    await store.replace_message(Revision(seq, head, edit.message, digest, rest, seal))
    await store.append_audit([act("edit", edit.id, edit.by, at=now, detail=detail)])
    return head.revision


async def purge(store: LetterOperations, ids: Sequence[str], by: By, now: datetime) -> list[str]:
    """Delete letters for good, unless one of them is being replayed."""
    found = await store.find_briefs(ids)
    for brief in found:
        check_purge(brief.id, brief.state)
    await _delete(store, found, "purge", by, now)
    return [brief.id for brief in found]


async def expire(
    store: LetterOperations, before: Mapping[State, datetime], by: By, limit: int, now: datetime
) -> int:
    """Delete the oldest letters of these states; return the number of deleted letters."""
    found: list[Brief] = []
    for state, time in before.items():
        if len(found) < limit:
            found += await store.find_overdue(state, time, limit - len(found))
    await _delete(store, found, "expire", by, now)
    return len(found)


async def _delete(
    store: LetterOperations, letters: Sequence[Brief], action: str, by: By, now: datetime
) -> None:
    if not letters:
        return
    await store.delete_letters(letters)
    shifts: Shifts = Counter()
    for brief in letters:
        shifts[brief.source, brief.fingerprint, brief.state] -= 1
    await store.shift_counts(shifts)
    await store.count_deleted(letters, action)
    # The audit keeps the fact, not the content.
    entries = [act(action, b.id, by, at=now, detail=f"was {b.state}") for b in letters]
    cleared = await store.clear_empty_groups(letters)
    await store.append_audit([*entries, *(blanked(name, by, at=now) for name in cleared)])
