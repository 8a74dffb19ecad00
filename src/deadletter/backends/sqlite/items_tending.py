"""Seeing to items whose time has come; all of them are found by one index."""

import sqlite3
from datetime import datetime
from typing import Final

from deadletter.core.item_plans import Plan
from deadletter.ports.items import Tended

from .items_moving import carry_out
from .items_queues import shelves
from .items_rows import FACTS, facts
from .rows import micros, when

_DUE: Final = f"""
SELECT {FACTS} FROM (SELECT * FROM items WHERE due <= ? ORDER BY due, seq LIMIT ?)
"""  # noqa: S608 -- made of constants
_NEXT: Final = "SELECT due FROM items WHERE due IS NOT NULL ORDER BY due LIMIT 1"


def next_at(connection: sqlite3.Connection) -> datetime | None:
    """When there is something to do."""
    row = connection.execute(_NEXT).fetchone()
    return None if row is None else when(row[0])


def tend(connection: sqlite3.Connection, now: datetime, limit: int) -> Tended:
    """Do it all, in the transaction of the connection."""
    (packed,) = connection.execute(_DUE, (micros(now), limit)).fetchone()
    found = facts(packed)
    known = shelves(connection, {queue for queue, _ in found})
    plan = Plan()
    for queue, fact in found:
        plan.look_at(known[queue], fact, now)
    carry_out(connection, plan, now)
    return Tended(
        tuple(plan.departed()),
        frozenset(plan.ready()),
        next_at(connection),
        more=len(found) == limit,
    )
