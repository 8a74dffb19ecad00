"""
Waits and leases that would last longer than was asked for.

They were written by a clock that was ahead: this machine's before it stepped back, or
another process's. Every sweep looks at a few, and goes on where the last one ended.
"""

import sqlite3
from typing import Final

_AT_ONCE: Final = 500  # rows of each lane to look at in one sweep
_SLACK: Final = 1_000_000  # microseconds; clocks that agree differ by less
_END: Final = 2**63 - 1

_LANES: Final = """
SELECT box.id, lane.suspect FROM mailboxes AS box
CROSS JOIN (SELECT 0 AS suspect UNION ALL SELECT 1) AS lane
WHERE NOT box.gone AND EXISTS (
    SELECT 1 FROM messages WHERE messages.mailbox = box.id
    AND messages.suspect = lane.suspect AND token IS NULL AND due > ?)
"""
_WAITING: Final = """
SELECT seq, due, span FROM messages
WHERE mailbox = ? AND suspect = ? AND token IS NULL AND due > ? AND due < ?
ORDER BY due DESC LIMIT ?
"""
_CLAIMED: Final = """
SELECT seq, leased, span FROM messages WHERE token IS NOT NULL AND leased > ?
ORDER BY leased DESC LIMIT ?
"""
_SHORTEN_WAIT: Final = "UPDATE messages SET due = ? + span WHERE seq = ?"
_SHORTEN_LEASE: Final = "UPDATE messages SET leased = ? + span WHERE seq = ?"


class Misdated:
    """Finds and shortens them, a part of every mailbox at a time."""

    def __init__(self) -> None:
        self._below: dict[tuple[int, int], int] = {}  # where to go on in each lane

    def shorten(self, connection: sqlite3.Connection, now: int) -> tuple[int, int]:
        """
        Shorten what is found in the transaction of the connection.

        Returns how many there were and how far the furthest was ahead, in microseconds.
        """
        after = now + _SLACK
        waits: list[tuple[int, int]] = []  # seq and how far it is ahead
        for lane in connection.execute(_LANES, (after,)).fetchall():
            below = self._below.pop(lane, _END)
            values = (*lane, after, below, _AT_ONCE)
            rows = connection.execute(_WAITING, values).fetchall()
            if len(rows) == _AT_ONCE:
                self._below[lane] = rows[-1][1]
            waits += _ahead(rows, now)
        leases = _ahead(connection.execute(_CLAIMED, (after, _AT_ONCE)).fetchall(), now)
        connection.executemany(_SHORTEN_WAIT, [(now, seq) for seq, _ in waits])
        connection.executemany(_SHORTEN_LEASE, [(now, seq) for seq, _ in leases])
        found = [ahead for _, ahead in (*waits, *leases)]
        return len(found), max(found, default=0)


def _ahead(rows: list[tuple[int, int, int]], now: int) -> list[tuple[int, int]]:
    """Those that would last longer than their span, and by how much."""
    return [
        (seq, until - span - now)
        for seq, until, span in rows
        if until - span - now > _SLACK
    ]
