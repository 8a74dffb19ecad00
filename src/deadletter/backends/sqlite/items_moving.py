"""Carrying out what was planned: back to the tail, or to the dead queue."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.item_life import item_id, least_loaded
from deadletter.core.item_plans import Back, Gone, Loads, Plan, Spared

from .items_origins import remember
from .items_queues import count, loads, shelf
from .rows import micros
from .sql import numbers, write

_NUMBER: Final = "UPDATE item_numbers SET last = last + ? RETURNING last"
_BACK: Final = """
UPDATE items SET seq = given.column2, state = given.column3, held = 0,
    due = given.column4, enqueue_at = given.column5, updated_at = ?
FROM (VALUES
"""
_BURY: Final = """
UPDATE items SET seq = given.column2, queue = ?, partition = ?, max_attempts = ?,
    updated_at = ?, source_id = given.column3, state = 0, held = 0, attempts = 0,
    due = NULL, expires = NULL, enqueue_at = NULL
FROM (VALUES
"""
_GIVEN: Final = ") AS given WHERE items.seq = given.column1"
# What was kept for its death is waited for no longer.
_SPARE: Final = """
UPDATE items SET expires = NULL, due = enqueue_at
WHERE seq IN (SELECT value FROM json_each(?))
"""
_DELETE: Final = "DELETE FROM items WHERE seq IN (SELECT value FROM json_each(?))"


def first_of(connection: sqlite3.Connection, n: int) -> int:
    """The first of so many new numbers."""
    ((last,),) = connection.execute(_NUMBER, (n,)).fetchall()
    return int(last) - n + 1


def carry_out(connection: sqlite3.Connection, plan: Plan, now: datetime) -> None:
    """Do what was planned."""
    if plan.back:
        _put_back(connection, plan.back, now)
    if plan.spared:
        connection.execute(_SPARE, (_numbers(plan.spared),))
    count(connection, plan.freed())  # before the loads of dead queues are looked at
    for target, gone in plan.dead_queues().items():
        _bury(connection, target, gone, now)
    if deleted := plan.deleted():
        connection.execute(_DELETE, (_numbers(deleted),))
    count(connection, plan.left())


def _put_back(
    connection: sqlite3.Connection, back: Sequence[Back], now: datetime
) -> None:
    first = first_of(connection, len(back))
    rows = []
    for place, one in enumerate(back):
        due = None if one.due is None else micros(one.due)
        at = None if one.enqueue_at is None else micros(one.enqueue_at)
        rows.append((one.fact.number, first + place, int(one.state), due, at))
    write(connection, _BACK, rows, _GIVEN, first=(micros(now),))


def _bury(
    connection: sqlite3.Connection, target: str, gone: Sequence[Gone], now: datetime
) -> None:
    dead = shelf(connection, target)
    partition = least_loaded(loads(connection, dead.number))
    first = first_of(connection, len(gone))
    rows = [
        (one.fact.number, first + place, item_id(one.fact.number))
        for place, one in enumerate(gone)
    ]
    values = (dead.number, partition, dead.queue.max_attempts, micros(now))
    write(connection, _BURY, rows, _GIVEN, first=values)
    origins = [
        (dead.number, item_id(one.fact.number), one.shelf.number, one.fact.partition)
        for one in gone
    ]
    remember(connection, origins, now)
    count(connection, Loads({(dead.number, partition): len(gone)}))


def _numbers(planned: Sequence[Gone | Spared]) -> str:
    return numbers(one.fact.number for one in planned)
