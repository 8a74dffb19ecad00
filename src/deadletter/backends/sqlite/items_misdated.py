"""
Leases of items that would last longer than was asked for.

They were written by a clock that was ahead. What is leased stands at the head of its
partition. Every look goes on where the last one ended, until nothing there is leased.
"""

import sqlite3
from datetime import datetime
from typing import Final

from deadletter.core.item_life import shortened_lease
from deadletter.ports.items import Shortened

from .rows import micros, when

_AT_ONCE: Final = 500  # items of each partition to look at
_PARTITIONS: Final = "SELECT queue, partition FROM lease_partitions"
_FIRST: Final = """
SELECT seq, held, due, updated_at FROM items
WHERE queue = ? AND partition = ? AND state = 0 AND seq > ? ORDER BY seq LIMIT ?
"""
# Who has completed it, or leased it anew, was faster.
_SHORTEN: Final = """
UPDATE items SET due = ?, updated_at = ? WHERE seq = ? AND held = 1 AND updated_at = ?
"""

Ahead = tuple[datetime, int, int]
"""When a lease is to end, the number of its item, when it was written to begin."""


class MisdatedLeases:
    """Finds them, a part of every partition at a time."""

    def __init__(self) -> None:
        self._behind: dict[tuple[int, int], int] = {}  # where to go on

    def find(self, connection: sqlite3.Connection, now: datetime) -> list[Ahead]:
        """Return leases to be shortened."""
        found: list[Ahead] = []
        for place in connection.execute(_PARTITIONS).fetchall():
            behind = self._behind.pop(place, -1)
            values = (*place, behind, _AT_ONCE)
            rows = connection.execute(_FIRST, values).fetchall()
            leases = [(seq, due, at) for seq, held, due, at in rows if held]
            if leases and len(rows) == _AT_ONCE:
                self._behind[place] = rows[-1][0]
            for seq, due, at in leases:
                until = shortened_lease(when(at), when(due), now)
                if until is not None:
                    found.append((until, seq, at))
        return found


def shorten(
    connection: sqlite3.Connection, found: list[Ahead], now: datetime
) -> Shortened:
    """Shorten leases in the transaction of the connection."""
    shortened = [
        at
        for until, seq, at in found
        if connection.execute(_SHORTEN, (micros(until), micros(now), seq, at)).rowcount
    ]
    furthest = max(shortened, default=micros(now))
    return Shortened(len(shortened), (when(furthest) - now).total_seconds())
