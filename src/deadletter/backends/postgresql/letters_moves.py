"""What people do to letters: compare and set, counted and audited in one go."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from deadletter.core.audit import act
from deadletter.core.escaping import shown, stored
from deadletter.core.grouping import blanked
from deadletter.core.keeping import check_purge
from deadletter.core.letter import By, State, sources_of
from deadletter.core.marks import MASK
from deadletter.ports.letters import Move

from .audit import append
from .counting import Shifts, check_fits, count, office_key, office_marks
from .groups import blank, lock
from .letters_rows import JOINED
from .pool import Connection

BRIEF: Final = "l.seq, l.id, l.source, m.fingerprint, m.state, m.replays"
"""The columns `brief_of` reads, in its order."""

_GIVEN: Final = f"""
SELECT {BRIEF} FROM {JOINED} WHERE l.id = ANY($1) ORDER BY l.id FOR UPDATE OF m
"""  # noqa: S608 -- made of constants
_OVERDUE: Final = f"""
SELECT {BRIEF} FROM deadletter.letter_marks m JOIN deadletter.letters l
ON l.seq = m.letter WHERE m.state = $1 AND m.dead_at < $2
ORDER BY m.dead_at, m.letter LIMIT $3 FOR UPDATE OF m
"""  # noqa: S608 -- made of constants
_SET: Final = """
UPDATE deadletter.letter_marks SET state = $1, revision = revision + 1
WHERE letter = ANY($2)
"""
_FORGET: Final = """
WITH gone AS (DELETE FROM deadletter.letters WHERE seq = ANY($1)),
shredded AS (DELETE FROM deadletter.letter_contents WHERE letter = ANY($1)),
burnt AS (DELETE FROM deadletter.letter_originals WHERE letter = ANY($1))
DELETE FROM deadletter.letter_marks WHERE letter = ANY($1)
"""
_PURGED: Final = "UPDATE deadletter.office SET purged = purged + $1"
_EXPIRED: Final = "UPDATE deadletter.office SET expired = expired + $1"
_TAKE_OFF: Final = f"""
UPDATE deadletter.office SET letter_marks = (letter_marks + $1) & {MASK}
WHERE marks_key = $2
"""  # noqa: S608 -- made of constants


class Brief(Struct, frozen=True):
    """What counting and auditing need to know of a letter."""

    seq: int
    id: str
    source: str
    fingerprint: str
    state: State
    replays: int


def brief_of(row: Sequence[Any]) -> Brief:
    """The letter in the columns seq, id, source, fingerprint, state, replays."""
    seq, id_, source, fingerprint, state, replays = row[:6]
    return Brief(
        seq, shown(id_), shown(source), shown(fingerprint), State(state), replays
    )


async def given(connection: Connection, letters: Sequence[str]) -> list[Brief]:
    """The letters of these ids, each once, in this order; nobody else changes them."""
    rows = await connection.fetch(_GIVEN, [stored(id_) for id_ in letters])
    found = {brief.id: brief for brief in map(brief_of, rows)}
    return [found[id_] for id_ in dict.fromkeys(letters) if id_ in found]


async def move(
    connection: Connection, move: Move, by: By, now: datetime
) -> list[Brief]:
    """Move those letters that are in one of the old states, and may: as they were."""
    allowed = move.old & sources_of(move.new)
    moving = [b for b in await given(connection, move.ids) if b.state in allowed]
    await set_states(connection, dict.fromkeys(moving, move.new))
    await append(
        connection,
        [
            act("move", b.id, by, at=now, detail=f"{b.state} to {move.new}")
            for b in moving
        ],
    )
    return moving


async def set_states(connection: Connection, targets: Mapping[Brief, State]) -> None:
    """Put letters into other states; whether they may is the caller's business."""
    if not targets:
        return
    shifts: Shifts = Counter()
    by_state: dict[State, list[int]] = {}
    for brief, state in targets.items():
        shifts[brief.source, brief.fingerprint, brief.state] -= 1
        shifts[brief.source, brief.fingerprint, state] += 1
        by_state.setdefault(state, []).append(brief.seq)
    for state, seqs in by_state.items():
        await connection.execute(_SET, state, seqs)
    await count(connection, shifts)


async def note(
    connection: Connection, letters: Sequence[str], text: str, by: By, now: datetime
) -> list[str]:
    """Write a note on letters: it stands in their audit."""
    found = [brief.id for brief in await given(connection, letters)]
    acts = [act("note", id_, by, at=now, detail=text) for id_ in found]
    await append(connection, acts)
    return found


async def purge(
    connection: Connection, letters: Sequence[str], by: By, now: datetime
) -> list[str]:
    """Delete letters for good, unless one of them is being replayed."""
    found = await given(connection, letters)
    for brief in found:
        check_purge(brief.id, brief.state)
    await _delete(connection, found, "purge", by, now)
    await connection.execute(_PURGED, len(found))
    return [brief.id for brief in found]


async def expire(
    connection: Connection,
    before: Mapping[State, datetime],
    by: By,
    limit: int,
    now: datetime,
) -> int:
    """Delete the oldest letters of finished states that died before then."""
    found: list[Brief] = []
    for state, time in before.items():
        rows = await connection.fetch(_OVERDUE, state, time, limit - len(found))
        found += map(brief_of, rows)
    await _delete(connection, found, "expire", by, now)
    await connection.execute(_EXPIRED, len(found))
    return len(found)


async def _delete(
    connection: Connection,
    letters: Sequence[Brief],
    action: str,
    by: By,
    now: datetime,
) -> None:
    if not letters:
        return
    names = sorted({stored(brief.fingerprint) for brief in letters})
    await lock(connection, names)
    await connection.execute(_FORGET, [brief.seq for brief in letters])
    shifts: Shifts = Counter()
    for brief in letters:
        shifts[brief.source, brief.fingerprint, brief.state] -= 1
    await count(connection, shifts)
    marks = await office_marks(connection)
    total = marks.texts({brief.id: -1 for brief in letters})
    done = await connection.execute(_TAKE_OFF, total, office_key(connection))
    check_fits(connection, fits=done == "UPDATE 1")
    # The fact is kept, not the content.
    acts = [act(action, b.id, by, at=now, detail=f"was {b.state}") for b in letters]
    gone = await blank(connection, names)
    await append(connection, [*acts, *(blanked(name, by, at=now) for name in gone)])
