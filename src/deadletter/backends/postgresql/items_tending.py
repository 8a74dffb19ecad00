"""Seeing to items whose time has come; all of them are found by one index."""

from datetime import datetime
from typing import Final

from deadletter.core.item_life import CLOCK_SLACK, shortened_lease
from deadletter.core.item_plans import Plan
from deadletter.ports.items import Shortened, Tended

from .items_moving import carry_out
from .items_queues import shelves
from .items_rows import FACTS, fact
from .items_writing import CLOCK
from .pool import Connection

_DUE: Final = f"""
SELECT {FACTS} FROM deadletter.items m WHERE due <= $1
ORDER BY due, seq LIMIT $2 FOR UPDATE SKIP LOCKED
"""  # noqa: S608 -- made of constants
NEXT: Final = """
SELECT due, due <= deadletter.clock() FROM deadletter.items
WHERE due IS NOT NULL ORDER BY due, seq LIMIT 1
"""


_LEASED_AHEAD: Final = """
SELECT i.seq, i.updated_at, i.due FROM deadletter.lease_queues q
CROSS JOIN generate_series(0, q.partitions - 1) AS p (partition)
CROSS JOIN LATERAL (
    SELECT seq, updated_at, due FROM deadletter.items
    WHERE queue = q.id AND partition = p.partition AND state = 1 AND updated_at > $1
    ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED) i
"""
_SHORTEN: Final = """
UPDATE deadletter.items SET due = $2, updated_at = $3 WHERE seq = $1
"""
_AT_ONCE: Final = 500  # leases of each partition


async def shorten_leases(connection: Connection) -> Shortened:
    """Shorten leases that began in the future."""
    now: datetime = await connection.fetchval(CLOCK)
    rows = await connection.fetch(_LEASED_AHEAD, now + CLOCK_SLACK, _AT_ONCE)
    changes = [(seq, shortened_lease(at, due, now), now) for seq, at, due in rows]
    await connection.executemany(_SHORTEN, changes)
    furthest = max((at for _, at, _ in rows), default=now)
    return Shortened(len(rows), (furthest - now).total_seconds())


async def tend(connection: Connection, *, limit: int) -> Tended:
    """Do it all in one transaction."""
    # One time for finding and judging: what falls due in between is for the next one.
    now: datetime = await connection.fetchval(CLOCK)
    found = await connection.fetch(_DUE, now, limit)
    known = await shelves(connection, {row[0] for row in found})
    plan = Plan()
    for row in found:
        plan.look_at(known[row[0]], fact(row), now)
    await carry_out(connection, plan)
    return Tended(
        tuple(plan.departed()),
        frozenset(plan.ready()),
        await connection.fetchval(NEXT),
        more=len(found) == limit,
    )
