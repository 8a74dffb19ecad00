"""What people do to letters: compare and set, counted and audited in one go."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from deadletter.core.escaping import shown, stored
from deadletter.core.grouping import blanked
from deadletter.core.keeping import check_purge
from deadletter.core.letter import By, State, sources_of
from deadletter.ports.letters import Move

from .groups import blank
from .schema import Document
from .times import place
from .turn import Turn

_BRIEF: Final = dict.fromkeys(("seq", "source", "fingerprint", "state", "replays"), 1)
_AT_ONCE: Final = 5_000  # ids in one statement


class Brief(Struct, frozen=True):
    """What counting and auditing need to know of a letter."""

    seq: int
    id: str
    source: str
    fingerprint: str
    state: State
    replays: int


async def given(turn: Turn, letters: Sequence[str]) -> list[Brief]:
    """The letters of these ids, each once, in this order."""
    ids = list(dict.fromkeys(letters))
    found: dict[str, Brief] = {}
    for start in range(0, len(ids), _AT_ONCE):
        wanted = [stored(id_) for id_ in ids[start : start + _AT_ONCE]]
        asked = {"_id": {"$in": wanted}}
        cursor = turn.there.letters.find(asked, _BRIEF, session=turn.session)
        found |= {one["_id"]: _brief(one) async for one in cursor}
    return [found[id_] for id_ in ids if id_ in found]


async def move(turn: Turn, move: Move, by: By, now: datetime) -> list[Brief]:
    """Move those letters that are in one of the old states, and may: as they were."""
    allowed = move.old & sources_of(move.new)
    moving = [one for one in await given(turn, move.ids) if one.state in allowed]
    await set_states(turn, dict.fromkeys(moving, move.new))
    for one in moving:
        detail = f"{one.state} to {move.new}"
        turn.act("move", one.id, by, at=now, detail=detail)
    return moving


async def set_states(turn: Turn, targets: Mapping[Brief, State], **also: Any) -> None:
    """Put letters into other states; whether they may is the caller's business."""
    by_state: defaultdict[State, list[str]] = defaultdict(list)
    for brief, state in targets.items():
        turn.shift(brief.source, brief.fingerprint, {brief.state: -1})
        turn.shift(brief.source, brief.fingerprint, {state: 1})
        by_state[state].append(brief.id)
    for state, ids in by_state.items():
        await turn.there.letters.update_many(
            {"_id": {"$in": ids}},
            {"$set": {"state": state.value, **also}, "$inc": {"revision": 1}},
            session=turn.session,
        )


async def note(
    turn: Turn, letters: Sequence[str], text: str, by: By, now: datetime
) -> list[str]:
    """Write a note on letters: it stands in their audit."""
    found = [brief.id for brief in await given(turn, letters)]
    for id_ in found:
        turn.act("note", id_, by, at=now, detail=text)
    return found


async def purge(turn: Turn, letters: Sequence[str], by: By, now: datetime) -> list[str]:
    """Delete letters for good, unless one of them is being replayed."""
    found = await given(turn, letters)
    for brief in found:
        check_purge(brief.id, brief.state)
    await _delete(turn, found, "purge", by, now)
    turn.count("purged", len(found))
    return [brief.id for brief in found]


async def expire(
    turn: Turn, before: Mapping[State, datetime], by: By, limit: int, now: datetime
) -> int:
    """Delete the oldest letters of finished states that died before then."""
    found: list[Brief] = []
    for state, time in before.items():
        if len(found) >= limit:
            break
        asked: Document = {"state": state.value, "place": {"$lt": place(time)}}
        cursor = turn.there.letters.find(asked, _BRIEF, session=turn.session)
        oldest = cursor.sort("place", 1).limit(limit - len(found))
        found += [_brief(one) async for one in oldest]
    await _delete(turn, found, "expire", by, now)
    turn.count("expired", len(found))
    return len(found)


async def _delete(
    turn: Turn, letters: Sequence[Brief], action: str, by: By, now: datetime
) -> None:
    if not letters:
        return
    there, session = turn.there, turn.session
    ids = {"_id": {"$in": [brief.id for brief in letters]}}
    seqs = {"letter": {"$in": [brief.seq for brief in letters]}}
    await there.letters.delete_many(ids, session=session)
    await there.parts.delete_many(seqs, session=session)
    originals = await there.originals.distinct("seq", ids, session=session)
    if originals:
        await there.originals.delete_many(ids, session=session)
        parts = {"letter": {"$in": originals}}
        await there.parts.delete_many(parts, session=session)
    turn.note_letters({brief.id: -1 for brief in letters})
    for brief in letters:  # the fact is kept, not the content
        turn.shift(brief.source, brief.fingerprint, {brief.state: -1})
        turn.act(action, brief.id, by, at=now, detail=f"was {brief.state}")
    for name in await blank(turn, Counter(brief.fingerprint for brief in letters)):
        turn.audit([blanked(name, by, at=now)])


def _brief(found: Document) -> Brief:
    return Brief(
        found["seq"],
        found["_id"],
        shown(found["source"]),
        shown(found["fingerprint"]),
        State(found["state"]),
        found["replays"],
    )
