"""Letters that change their group, and what people said about letters to come."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from deadletter.core.audit import act
from deadletter.core.escaping import shown, stored
from deadletter.core.letter import AuditEntry, By, Group
from deadletter.core.marks import MASK
from deadletter.core.regrouping import GroupRule, Regrouping, deaths_moved, joined, told

from .audit import append
from .counting import Shifts, check_fits, count, office_key, office_marks, shift
from .groups import groups_named, put_standing
from .letters_rows import HEAD, JOINED, head_of
from .pool import Connection
from .text import storable

_MOVING: Final = f"""
SELECT {HEAD} FROM {JOINED} WHERE l.id = ANY($1) AND m.fingerprint = $2
ORDER BY l.id FOR UPDATE OF l, m
"""  # noqa: S608 -- made of constants
_MOVE: Final = """
WITH marked AS (
    UPDATE deadletter.letter_marks SET fingerprint = $1 WHERE letter = ANY($2)
)
UPDATE deadletter.letters SET fingerprint = $1 WHERE seq = ANY($2)
"""
_PUT: Final = """
INSERT INTO deadletter.groups (fingerprint, source, error_type, text, frame, trouble,
    code, first_seen, last_seen, total, open)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0)
ON CONFLICT (fingerprint) DO UPDATE SET
    (error_type, text, frame, trouble, code, first_seen, last_seen, total)
    = (excluded.error_type, excluded.text, excluded.frame, excluded.trouble,
       excluded.code, excluded.first_seen, excluded.last_seen, excluded.total)
"""
_NOTE_DEATHS: Final = f"""
UPDATE deadletter.office SET death_marks = (death_marks + $1) & {MASK}
WHERE marks_key = $2
"""  # noqa: S608 -- made of constants
_LEFT: Final = """
UPDATE deadletter.groups SET total = greatest(total - $2, 0) WHERE fingerprint = $1
"""
_GONE: Final = """
WITH uncounted AS (DELETE FROM deadletter.group_states WHERE fingerprint = $1)
DELETE FROM deadletter.groups WHERE fingerprint = $1
"""
_RULES: Final = "SELECT fingerprint, rules FROM deadletter.group_rules"
_SET_RULES: Final = """
INSERT INTO deadletter.group_rules (fingerprint, rules) VALUES ($1, $2)
ON CONFLICT (fingerprint) DO UPDATE SET rules = excluded.rules
"""
_NO_RULES: Final = "DELETE FROM deadletter.group_rules WHERE fingerprint = $1"
_read: Final = msgspec.json.Decoder(tuple[GroupRule, ...])


async def regroup(
    connection: Connection, move: Regrouping, by: By, now: datetime
) -> int:
    """Move letters to another group, and what was said of theirs along."""
    asked = [stored(id_) for id_ in move.ids]
    rows = await connection.fetch(_MOVING, asked, stored(move.old))
    if not rows or move.old == move.new:
        return 0
    heads = [head_of(row) for row in rows]
    there = await groups_named(connection, [move.old, move.new], now)
    old = there[move.old]
    is_last = sum(old.counts.values()) <= len(heads)
    new = there.get(move.new)
    after = joined(old, new, heads, is_last=is_last)
    await _put(connection, move.new, after)
    marks = await office_marks(connection)
    total = marks.texts(deaths_moved(move, new, after))
    shifts: Shifts = Counter()
    for head in heads:
        shift(shifts, head, -1)
        shifts[head.source, move.new, head.state] += 1
    await connection.execute(_MOVE, stored(move.new), [row[0] for row in rows])
    done = await connection.execute(_NOTE_DEATHS, total, office_key(connection))
    check_fits(connection, fits=done == "UPDATE 1")
    await count(connection, shifts)
    if is_last:
        await connection.execute(_GONE, stored(move.old))
    else:
        await connection.execute(_LEFT, stored(move.old), len(heads))
    detail = told(len(heads), move)
    await append(connection, [act("regroup", move.old, by, at=now, detail=detail)])
    return len(heads)


async def rules(connection: Connection) -> dict[str, tuple[GroupRule, ...]]:
    """Return the merges and splits that people decided, by group."""
    found = await connection.fetch(_RULES)
    return {shown(name): _read.decode(said) for name, said in found}


async def set_rules(
    connection: Connection,
    fingerprint: str,
    rules: Sequence[GroupRule],
    entry: AuditEntry,
) -> None:
    """Write down where letters of a group belong from now on."""
    name = stored(fingerprint)
    if rules:
        await connection.execute(_SET_RULES, name, msgspec.json.encode(rules))
    else:
        await connection.execute(_NO_RULES, name)
    await append(connection, [entry])


async def _put(connection: Connection, name: str, group: Group) -> None:
    row = (
        name,
        group.source,
        group.error_type,
        group.text,
        group.frame,
        group.trouble,
        group.code,
        group.first_seen,
        group.last_seen,
        group.total,
    )
    await connection.execute(_PUT, *storable(row))
    await put_standing(connection, name, group.standing)
