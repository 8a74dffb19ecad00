"""
Waits and leases that would last longer than was asked for.

They were written while the server's clock was ahead. Every sweep looks at a few, and
goes on where the last one ended.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from .pool import Connection

_AT_ONCE: Final = 500  # rows of each lane to look at in one sweep
_SLACK: Final = timedelta(seconds=1)  # clocks that agree differ by less
_END: Final = datetime(9999, 1, 1, tzinfo=UTC)

# Rows that somebody else is at are left for the next sweep.
_WAITING: Final = """
WITH seen AS MATERIALIZED (
    SELECT box.id, lane.suspect, found.*
    FROM deadletter.mailboxes box
    CROSS JOIN (VALUES (false), (true)) AS lane (suspect)
    LEFT JOIN unnest($1::int[], $2::bool[], $3::timestamptz[])
        AS on_from (id, suspect, below) USING (id, suspect)
    CROSS JOIN LATERAL (
        SELECT seq, due, due - span - deadletter.clock() AS ahead,
            count(*) OVER () AS looked, min(due) OVER () AS lowest
        FROM (
            SELECT seq, due, span FROM deadletter.messages
            WHERE mailbox = box.id AND suspect = lane.suspect AND token IS NULL
            AND due > deadletter.clock() + $5 AND due < coalesce(on_from.below, $6)
            ORDER BY due DESC LIMIT $4
        ) AS far
    ) AS found
    WHERE NOT box.gone
), locked AS MATERIALIZED (
    SELECT m.seq FROM deadletter.messages m
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM seen WHERE ahead > $5))
    AND m.token IS NULL FOR UPDATE SKIP LOCKED
), shortened AS (
    UPDATE deadletter.messages m SET due = deadletter.clock() + m.span
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM locked)) RETURNING m.seq, m.mailbox
)
SELECT id, suspect, min(lowest), max(looked), count(shortened.seq),
    max(ahead) FILTER (WHERE shortened.seq IS NOT NULL),
    CASE WHEN count(shortened.seq) > 0 THEN pg_notify('deadletter', id::text) END
FROM seen LEFT JOIN shortened USING (seq) GROUP BY id, suspect
"""
_CLAIMED: Final = """
WITH locked AS MATERIALIZED (
    SELECT seq, leased - span - deadletter.clock() AS ahead FROM deadletter.messages
    WHERE token IS NOT NULL AND leased > deadletter.clock() + $2
    AND leased - span > deadletter.clock() + $2
    ORDER BY leased DESC LIMIT $1 FOR UPDATE SKIP LOCKED
), shortened AS (
    UPDATE deadletter.messages m SET leased = deadletter.clock() + m.span
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM locked))
)
SELECT count(*), max(ahead) FROM locked
"""


class Misdated:
    """Finds and shortens them, a part of every mailbox at a time."""

    def __init__(self) -> None:
        self._below: dict[tuple[int, bool], datetime] = {}  # where to go on

    async def shorten(self, connection: Connection) -> tuple[int, timedelta, list[int]]:
        """
        Shorten what is found in the transaction of the connection.

        Returns how many there were, how far the furthest was ahead, and the mailboxes
        in which messages wait less long now.
        """
        boxes = [box for box, _ in self._below]
        lanes = [suspect for _, suspect in self._below]
        on_from = (boxes, lanes, [*self._below.values()])
        rows = await connection.fetch(_WAITING, *on_from, _AT_ONCE, _SLACK, _END)
        self._below = {(row[0], row[1]): row[2] for row in rows if row[3] == _AT_ONCE}
        count, furthest = await connection.fetchrow(_CLAIMED, _AT_ONCE, _SLACK)
        found = [row for row in rows if row[4]]
        aheads = [furthest or timedelta(), *(row[5] for row in found)]
        return count + sum(row[4] for row in found), max(aheads), [r[0] for r in found]
