"""New groups counted by kind and day, so that a flood of them ends in one."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.escaping import shown, stored
from deadletter.core.group_limit import GroupLimit, day_of
from deadletter.core.letter import DeadLetter
from deadletter.core.regrouping import Rules, followed, placed

from .pool import Connection

# Locked until the end: of two who make groups of a kind, the later one waits.
# A clock that is behind at midnight must not begin a new day again.
_MADE: Final = """
INSERT INTO deadletter.group_kinds AS t (overflow, day, made)
SELECT name, $2, 0 FROM unnest($1::text[]) AS name ORDER BY name
ON CONFLICT (overflow) DO UPDATE SET
    made = CASE WHEN t.day >= excluded.day THEN t.made ELSE 0 END,
    day = greatest(t.day, excluded.day)
RETURNING overflow, made
"""
_THERE: Final = "SELECT fingerprint FROM deadletter.groups WHERE fingerprint = ANY($1)"
_COUNT: Final = """
UPDATE deadletter.group_kinds t SET made = t.made + g.n
FROM unnest($1::text[], $2::integer[]) AS g (overflow, n)
WHERE t.overflow = g.overflow
"""


async def limit_groups(
    connection: Connection,
    letters: Sequence[DeadLetter],
    now: datetime,
    limit: GroupLimit,
    rules: Rules | None,
) -> Sequence[DeadLetter]:
    """Return the letters in the groups they are to be kept in; new ones are counted."""
    letters, named = placed(letters, rules)
    new = limit.candidates(letters, named)
    await _drop_those_there(connection, new, limit)
    if not new:
        return letters
    kinds = sorted(set(new.values()))
    made = dict(await connection.fetch(_MADE, kinds, day_of(now)))
    # Whoever had the lock may have made some of them meanwhile.
    await _drop_those_there(connection, new, limit)
    kept, more = limit.divert(letters, new, made)
    if more:
        await connection.execute(_COUNT, list(more), list(more.values()))
    return followed(kept, rules) if rules else kept


async def _drop_those_there(
    connection: Connection, new: dict[str, str], limit: GroupLimit
) -> None:
    if not new:
        return
    rows = await connection.fetch(_THERE, [stored(name) for name in new])
    there = [shown(row[0]) for row in rows]
    limit.remember(there)
    for name in there:
        del new[name]
