"""Where items came from: remembered, so that none comes twice, and forgotten again."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from deadletter.core.item_origins import REMEMBERED, is_forgotten

from .rows import micros, seconds
from .sql import fetch, packed, write

Origin: TypeAlias = tuple[int, str, int, int]
"""queue, source_id, source_queue (0: not known), source_partition"""

_ADD: Final = """
INSERT INTO item_origins (look_at, queue, source_id, source_queue, source_partition)
SELECT ?, column1, column2, column3, column4 FROM (VALUES
"""
_HAD: Final = """
UPDATE item_origins SET look_at = ?
WHERE queue = ? AND source_id IN (SELECT value FROM json_each(?))
RETURNING source_id
"""
_NEXT: Final = "SELECT look_at <= ? FROM item_origins ORDER BY look_at LIMIT 1"
_KEY: Final = "queue, source_id, source_queue, source_partition"
_DUE: Final = f"""
SELECT {_KEY}, missed, EXISTS (SELECT 1 FROM items
    WHERE items.queue = o.queue AND items.source_id = o.source_id) AS is_there
FROM item_origins AS o WHERE look_at <= ? ORDER BY look_at LIMIT ?
"""  # noqa: S608 -- made of constants
_AGAIN: Final = """
UPDATE item_origins SET look_at = ?, missed = NOT given.column5
FROM (VALUES
"""
_SAME: Final = """
) AS given WHERE item_origins.queue = given.column1
AND item_origins.source_id = given.column2
AND item_origins.source_queue = given.column3
AND item_origins.source_partition = given.column4
"""
_FORGET: Final = f"DELETE FROM item_origins WHERE ({_KEY}) IN (VALUES"  # noqa: S608 -- ours


def remember(
    connection: sqlite3.Connection, origins: Sequence[Origin], now: datetime
) -> None:
    """Note where items came from that are here now."""
    write(connection, _ADD, origins, ")", first=(_later(now),))


def had(
    connection: sqlite3.Connection, queue: int, sources: Sequence[str], now: datetime
) -> set[str]:
    """Those that the queue has had; who asks still knows of them, and may ask again."""
    values = (_later(now), queue, packed(sources))
    return {id_ for (id_,) in connection.execute(_HAD, values)}


def is_due(connection: sqlite3.Connection, now: datetime) -> bool:
    """Whether there is anything to look at."""
    row = connection.execute(_NEXT, (micros(now),)).fetchone()
    return bool(row and row[0])


def forget(connection: sqlite3.Connection, now: datetime, limit: int) -> bool:
    """Forget what has been gone for long enough; whether there is more to look at."""
    values = (micros(now), limit)
    due = fetch(connection, f"{_KEY}, missed, is_there", _DUE, values)
    gone: list[Sequence[Any]] = []
    stay: list[Sequence[Any]] = []
    for *key, missed, is_there in due:
        if is_forgotten(is_there=bool(is_there), was_missed=bool(missed)):
            gone.append(key)
        else:
            stay.append((*key, is_there))
    write(connection, _FORGET, gone, ")")
    write(connection, _AGAIN, stay, _SAME, first=(_later(now),))
    return len(due) == limit


def _later(now: datetime) -> int:
    return micros(now) + seconds(REMEMBERED)
