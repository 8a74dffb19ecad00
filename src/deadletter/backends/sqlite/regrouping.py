"""Letters that change their group, and what people said about letters to come."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from deadletter.core.audit import act
from deadletter.core.letter import AuditEntry, By, Group
from deadletter.core.regrouping import GroupRule, Regrouping, deaths_moved, joined, told

from .audit import append
from .group_standing import put_standing
from .groups import Shifts, count, group_named, note_deaths, shift
from .letters_rows import HEAD, head_of
from .rows import micros
from .sql import fetch, ids, numbers, stored

_MOVING: Final = """
SELECT l.* FROM json_each(?) CROSS JOIN letters l ON l.id = value
WHERE l.fingerprint = ?
"""
_MOVE: Final = """
UPDATE letters SET fingerprint = ? WHERE seq IN (SELECT value FROM json_each(?))
"""
_PUT: Final = """
INSERT INTO groups (fingerprint, source, error_type, text, frame, trouble, code,
                    first_seen, last_seen, total)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (fingerprint) DO UPDATE SET
    (error_type, text, frame, trouble, code, first_seen, last_seen, total)
    = (excluded.error_type, excluded.text, excluded.frame, excluded.trouble,
       excluded.code, excluded.first_seen, excluded.last_seen, excluded.total)
"""
_LEFT: Final = "UPDATE groups SET total = max(total - ?, 0) WHERE fingerprint = ?"
_GONE: Final = (
    "DELETE FROM groups WHERE fingerprint = ?",
    "DELETE FROM group_states WHERE fingerprint = ?",
)
_RULES: Final = "SELECT fingerprint, rules FROM group_rules"
_SET_RULES: Final = """
INSERT INTO group_rules (fingerprint, rules) VALUES (?, ?)
ON CONFLICT (fingerprint) DO UPDATE SET rules = excluded.rules
"""
_NO_RULES: Final = "DELETE FROM group_rules WHERE fingerprint = ?"
_read: Final = msgspec.json.Decoder(tuple[GroupRule, ...])


def regroup(
    connection: sqlite3.Connection, moves: Sequence[Regrouping], by: By, now: datetime
) -> int:
    """Move letters to other groups, and what was said of theirs along."""
    total = 0
    for move in moves:
        if moved := _regroup(connection, move, now):
            entry = act("regroup", move.old, by, at=now, detail=told(moved, move))
            append(connection, [entry])
            total += moved
    return total


def _regroup(connection: sqlite3.Connection, move: Regrouping, now: datetime) -> int:
    asked = (ids(move.ids), stored(move.old))
    rows = fetch(connection, HEAD, _MOVING, asked)
    if not rows or move.old == move.new:
        return 0
    heads = [head_of(row) for row in rows]
    old = group_named(connection, move.old, now)
    new = group_named(connection, move.new, now)
    assert old is not None  # there are letters in it
    is_last = sum(old.counts.values()) <= len(heads)
    after = joined(old, new, heads, is_last=is_last)
    _put(connection, move.new, after)
    note_deaths(connection, deaths_moved(move, new, after))
    shifts: Shifts = Counter()
    for head in heads:
        shift(shifts, head, -1)
        shifts[head.source, move.new, head.state] += 1
    connection.execute(_MOVE, (stored(move.new), numbers(row[0] for row in rows)))
    count(connection, shifts)
    if is_last:
        for statement in _GONE:
            connection.execute(statement, (stored(move.old),))
    else:
        connection.execute(_LEFT, (len(heads), stored(move.old)))
    return len(heads)


def rules(connection: sqlite3.Connection) -> dict[str, tuple[GroupRule, ...]]:
    """Return the merges and splits that people decided, by group."""
    found = fetch(connection, "fingerprint, rules", _RULES)
    return {name: _read.decode(said) for name, said in found}


def set_rules(
    connection: sqlite3.Connection,
    fingerprint: str,
    rules: Sequence[GroupRule],
    entry: AuditEntry,
) -> None:
    """Write down where letters of a group belong from now on."""
    name = stored(fingerprint)
    if rules:
        said = msgspec.json.encode(rules).decode()
        connection.execute(_SET_RULES, (name, said))
    else:
        connection.execute(_NO_RULES, (name,))
    append(connection, [entry])


def _put(connection: sqlite3.Connection, name: str, group: Group) -> None:
    connection.execute(
        _PUT,
        (
            stored(name),
            stored(group.source),
            stored(group.error_type),
            stored(group.text),
            stored(group.frame),
            group.trouble.value,
            stored(group.code),
            micros(group.first_seen),
            micros(group.last_seen),
            group.total,
        ),
    )
    put_standing(connection, name, group.standing)
