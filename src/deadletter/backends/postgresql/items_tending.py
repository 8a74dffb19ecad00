"""Seeing to items whose time has come; all of them are found by one index."""

from datetime import datetime
from typing import Final

from deadletter.core.item_plans import Plan
from deadletter.ports.items import Tended

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
