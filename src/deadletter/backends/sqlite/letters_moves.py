"""What people do to letters: compare and set, counted and audited in one go."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.audit import act
from deadletter.core.grouping import blanked
from deadletter.core.keeping import check_purge
from deadletter.core.letter import By, State, sources_of
from deadletter.ports.letters import Move

from .audit import append
from .group_standing import blank
from .groups import Shifts, count
from .marks import ADD, office_marks
from .rows import micros
from .sql import Row, fetch, ids, numbers

_COLUMNS: Final = "seq, id, source, fingerprint, state, replays"
_GIVEN: Final = """
SELECT l.seq, l.id, l.source, l.fingerprint, l.state, l.replays
FROM json_each(?) CROSS JOIN letters l ON l.id = value
"""
_OVERDUE: Final = """
SELECT * FROM letters WHERE state = ? AND dead_at < ? ORDER BY dead_at, seq LIMIT ?
"""
_SET: Final = """
UPDATE letters SET state = ?, revision = revision + 1
WHERE seq IN (SELECT value FROM json_each(?))
"""
_FORGET: Final = "DELETE FROM letters WHERE seq IN (SELECT value FROM json_each(?))"
_SHRED: Final = """
DELETE FROM letter_contents WHERE letter IN (SELECT value FROM json_each(?))
"""
_SHRED_ORIGINALS: Final = """
DELETE FROM letter_originals WHERE letter IN (SELECT value FROM json_each(?))
"""
_PURGED: Final = "UPDATE office SET purged = purged + ?"
_EXPIRED: Final = "UPDATE office SET expired = expired + ?"
_TAKE_OFF: Final = f"""
UPDATE office SET letter_marks = letter_marks + ? {ADD}
"""  # noqa: S608 -- made of constants


class Brief(Struct, frozen=True):
    """What counting and auditing need to know of a letter."""

    seq: int
    id: str
    source: str
    fingerprint: str
    state: State
    replays: int


def brief_of(row: Row) -> Brief:
    """The letter in the columns seq, id, source, fingerprint, state, replays."""
    seq, id_, source, fingerprint, state, replays = row[:6]
    return Brief(seq, id_, source, fingerprint, State(state), replays)


def given(connection: sqlite3.Connection, letters: Sequence[str]) -> list[Brief]:
    """The letters of these ids, each once, in this order."""
    return [
        brief_of(row) for row in fetch(connection, _COLUMNS, _GIVEN, (ids(letters),))
    ]


def move(
    connection: sqlite3.Connection, move: Move, by: By, now: datetime
) -> list[Brief]:
    """Move those letters that are in one of the old states, and may: as they were."""
    allowed = move.old & sources_of(move.new)
    moving = [brief for brief in given(connection, move.ids) if brief.state in allowed]
    set_states(connection, dict.fromkeys(moving, move.new))
    append(
        connection,
        [
            act("move", b.id, by, at=now, detail=f"{b.state} to {move.new}")
            for b in moving
        ],
    )
    return moving


def set_states(connection: sqlite3.Connection, targets: Mapping[Brief, State]) -> None:
    """Put letters into other states; whether they may is the caller's business."""
    shifts: Shifts = Counter()
    by_state: dict[State, list[int]] = {}
    for brief, state in targets.items():
        shifts[brief.source, brief.fingerprint, brief.state] -= 1
        shifts[brief.source, brief.fingerprint, state] += 1
        by_state.setdefault(state, []).append(brief.seq)
    for state, seqs in by_state.items():
        connection.execute(_SET, (state.value, numbers(seqs)))
    count(connection, shifts)


def note(
    connection: sqlite3.Connection,
    letters: Sequence[str],
    text: str,
    by: By,
    now: datetime,
) -> list[str]:
    """Write a note on letters: it stands in their audit."""
    found = [brief.id for brief in given(connection, letters)]
    append(connection, [act("note", id_, by, at=now, detail=text) for id_ in found])
    return found


def purge(
    connection: sqlite3.Connection, letters: Sequence[str], by: By, now: datetime
) -> list[str]:
    """Delete letters for good, unless one of them is being replayed."""
    found = given(connection, letters)
    for brief in found:
        check_purge(brief.id, brief.state)
    _delete(connection, found, "purge", by, now)
    connection.execute(_PURGED, (len(found),))
    return [brief.id for brief in found]


def expire(
    connection: sqlite3.Connection,
    before: Mapping[State, datetime],
    by: By,
    limit: int,
    now: datetime,
) -> int:
    """Delete the oldest letters of finished states that died before then."""
    found: list[Brief] = []
    for state, time in before.items():
        left = limit - len(found)
        rows = fetch(connection, _COLUMNS, _OVERDUE, (state.value, micros(time), left))
        found += map(brief_of, rows)
    _delete(connection, found, "expire", by, now)
    connection.execute(_EXPIRED, (len(found),))
    return len(found)


def _delete(
    connection: sqlite3.Connection,
    letters: Sequence[Brief],
    action: str,
    by: By,
    now: datetime,
) -> None:
    if not letters:
        return
    seqs = numbers(brief.seq for brief in letters)
    connection.execute(_FORGET, (seqs,))
    # Large contents otherwise stay in the file until their place is used again.
    connection.execute("PRAGMA secure_delete = ON").fetchall()
    connection.execute(_SHRED, (seqs,))
    connection.execute(_SHRED_ORIGINALS, (seqs,))
    shifts: Shifts = Counter()
    for brief in letters:
        shifts[brief.source, brief.fingerprint, brief.state] -= 1
    count(connection, shifts)
    gone = blank(connection, sorted({brief.fingerprint for brief in letters}))
    connection.execute("PRAGMA secure_delete = FAST").fetchall()
    marks = office_marks(connection).texts({brief.id: -1 for brief in letters})
    connection.execute(_TAKE_OFF, (marks,))
    # The fact is kept, not the content.
    append(
        connection,
        [act(action, b.id, by, at=now, detail=f"was {b.state}") for b in letters],
    )
    append(connection, [blanked(name, by, at=now) for name in gone])
