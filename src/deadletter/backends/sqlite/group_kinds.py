"""New groups counted by kind and day, so that a flood of them ends in one."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.group_limit import GroupLimit, day_of
from deadletter.core.letter import DeadLetter
from deadletter.core.regrouping import Rules, followed, placed

from .sql import fetch, stored, write

_CHUNK: Final = 1_000  # names in one statement
_THERE: Final = "SELECT fingerprint FROM groups WHERE fingerprint IN (VALUES"
_MADE: Final = (
    "SELECT overflow, made FROM group_kinds WHERE day >= {} AND overflow IN ("
)
_COUNTS: Final = "overflow, made"
_COUNT: Final = "INSERT INTO group_kinds (overflow, day, made) VALUES"
# A clock that is behind at midnight must not begin a new day again.
_COUNTED: Final = """
ON CONFLICT (overflow) DO UPDATE SET
    made = excluded.made + CASE WHEN day >= excluded.day THEN made ELSE 0 END,
    day = max(day, excluded.day)
"""


def limit_groups(
    connection: sqlite3.Connection,
    letters: Sequence[DeadLetter],
    now: datetime,
    limit: GroupLimit,
    rules: Rules,
) -> Sequence[DeadLetter]:
    """Return the letters in the groups they are to be kept in; new ones are counted."""
    letters, named = placed(letters, rules)
    new = limit.candidates(letters, named)
    there = _there(connection, list(new))
    limit.remember(there)
    for name in there:
        del new[name]
    if not new:
        return letters
    day = day_of(now)
    made = _made(connection, sorted(set(new.values())), day)
    kept, more = limit.divert(letters, new, made)
    write(connection, _COUNT, [(name, day, n) for name, n in more.items()], _COUNTED)
    return followed(kept, rules)


def _there(connection: sqlite3.Connection, names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for start in range(0, len(names), _CHUNK):
        some = [stored(name) for name in names[start : start + _CHUNK]]
        marks = ", ".join(["(?)"] * len(some))
        rows = fetch(connection, "fingerprint", f"{_THERE} {marks})", some)
        found += [row[0] for row in rows]
    return found


def _made(
    connection: sqlite3.Connection, kinds: Sequence[str], day: int
) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(kinds), _CHUNK):
        some = kinds[start : start + _CHUNK]
        marks = ", ".join("?" * len(some))
        asked = f"{_MADE.format(day)}{marks})"
        found |= {row[0]: row[1] for row in fetch(connection, _COUNTS, asked, some)}
    return found
