"""How groups stand: said by people, or shown by a death to be otherwise."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Final

from deadletter.core.audit import DIED_AGAIN, act
from deadletter.core.errors import NotFound
from deadletter.core.grouping import (
    regressed,
    regresses,
    said,
    versions_to_compare,
)
from deadletter.core.letter import (
    By,
    DeadLetter,
    GroupStatus,
    LetterHead,
    Standing,
)

from .audit import append
from .rows import micros, when
from .sql import Row, fetch, stored
from .versions import first_seen

_CHUNK: Final = 1_000  # groups in one statement
_COLUMNS: Final = "fingerprint, status, since, owner, note, until, version"
_ONE: Final = "SELECT * FROM groups WHERE fingerprint = ?"
_RESOLVED: Final = """
SELECT * FROM groups WHERE status = 'resolved' AND fingerprint IN (VALUES
"""
_SET: Final = """
UPDATE groups SET status = ?, since = ?, owner = ?, note = ?, until = ?, version = ?
WHERE fingerprint = ?
"""
_BLANK: Final = """
UPDATE groups SET text = '', frame = '', code = ''
WHERE fingerprint = ? AND (text <> '' OR frame <> '' OR code <> '')
AND NOT EXISTS (
    SELECT 1 FROM group_states s WHERE s.fingerprint = groups.fingerprint AND s.n > 0)
"""


def say(
    connection: sqlite3.Connection,
    fingerprint: str,
    standing: Standing,
    by: By,
    now: datetime,
) -> None:
    """Write down how a group stands."""
    rows = fetch(connection, _COLUMNS, _ONE, (stored(fingerprint),))
    if not rows:
        raise NotFound(f"there is no group {fingerprint}")
    detail = said(standing_of(rows[0][1:]), standing)
    put_standing(connection, fingerprint, standing)
    append(connection, [act("group", fingerprint, by, at=now, detail=detail)])


def blank(connection: sqlite3.Connection, names: Sequence[str]) -> list[str]:
    """Delete what groups without letters say of them; which ones these were."""
    return [
        name for name in names if connection.execute(_BLANK, (stored(name),)).rowcount
    ]


def regress(
    connection: sqlite3.Connection, deaths: Sequence[DeadLetter], now: datetime
) -> None:
    """Mark resolved groups as regressed where these deaths show that they are not."""
    names = dict.fromkeys([letter.head.fingerprint for letter in deaths])
    resolved = _resolved(connection, list(names))
    heads: dict[str, list[LetterHead]] = {name: [] for name in resolved}
    for letter in deaths if resolved else ():
        if letter.head.fingerprint in heads:
            heads[letter.head.fingerprint].append(letter.head)
    wanted = versions_to_compare(resolved, chain.from_iterable(heads.values()))
    seen = first_seen(connection, wanted)
    for fingerprint, standing in resolved.items():
        if not regresses(standing, heads[fingerprint], seen):
            continue
        after = regressed(standing, now)
        put_standing(connection, fingerprint, after)
        detail = said(standing, after)
        entry = act("regress", fingerprint, DIED_AGAIN, at=now, detail=detail)
        append(connection, [entry])


def standing_of(row: Row) -> Standing:
    """The standing in the columns status, since, owner, note, until, version."""
    status, since, owner, note, until, version = row
    return Standing(
        status=GroupStatus(status),
        since=None if since is None else when(since),
        owner=owner,
        note=note,
        until=None if until is None else when(until),
        version=version,
    )


def _resolved(
    connection: sqlite3.Connection, fingerprints: Sequence[str]
) -> dict[str, Standing]:
    found: dict[str, Standing] = {}
    for start in range(0, len(fingerprints), _CHUNK):
        some = [stored(one) for one in fingerprints[start : start + _CHUNK]]
        marks = ", ".join(["(?)"] * len(some))
        for row in fetch(connection, _COLUMNS, f"{_RESOLVED} {marks})", some):
            found[row[0]] = standing_of(row[1:])
    return found


def put_standing(
    connection: sqlite3.Connection, fingerprint: str, standing: Standing
) -> None:
    """Write down how a group stands, without a word in the audit."""
    since, until = standing.since, standing.until
    connection.execute(
        _SET,
        (
            standing.status.value,
            None if since is None else micros(since),
            stored(standing.owner),
            stored(standing.note),
            None if until is None else micros(until),
            stored(standing.version),
            stored(fingerprint),
        ),
    )
