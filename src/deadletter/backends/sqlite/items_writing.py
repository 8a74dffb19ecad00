"""Adding items, lending them, forgetting them: a batch in a few statements."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.item_labels import pack_labels
from deadletter.core.item_life import (
    Round,
    least_loaded,
    scheduled_for,
)
from deadletter.core.item_plans import (
    Fact,
    Loads,
    Plan,
    Shelf,
    denial,
    numbers_of,
    sort_retrials,
)
from deadletter.core.items import (
    Completion,
    Denial,
    Departed,
    Item,
    NewItem,
    Retrial,
)

from .items_moving import carry_out, first_of
from .items_queues import count, loads, shelf
from .items_rows import FACTS, Found, facts, read_items
from .rows import micros, seconds
from .sql import numbers, write

NewRow: TypeAlias = tuple[datetime | None, bytes | None, bytes]
"""enqueue_at, labels, payload"""

# Most of it is the same for the whole batch.
_ADD: Final = """
INSERT INTO items (queue, max_attempts, created_at, updated_at, state, expires, due,
    seq, partition, labels, payload)
SELECT ?, ?, ?, ?, 0, ?, ?, column1, column2, column3, column4 FROM (VALUES
"""
_SCHEDULE: Final = """
INSERT INTO items (queue, max_attempts, created_at, updated_at, state, expires, due,
    enqueue_at, seq, partition, labels, payload)
SELECT ?, ?, ?, ?, 2, column5 + ?, column5, column5, column1, column2, column3, column4
FROM (VALUES
"""
_HEADS: Final = """
SELECT json_group_array(partition) FROM (
    SELECT partition, (SELECT seq FROM items WHERE items.queue = p.queue
        AND items.partition = p.partition AND state = 0 AND held = 0
        AND seq >= p.head ORDER BY seq LIMIT 1) AS first
    FROM lease_partitions AS p WHERE queue = ? AND first IS NOT NULL ORDER BY first)
"""
# What is dead by now is not lent any more, except where nothing dies.
_FREE: Final = """
WHERE queue = ? AND partition = ? AND state = 0 AND held = 0
AND (items.due IS NULL OR items.due > ?)
"""
_NEXT: Final = f"""
SELECT seq, 1 AS held, ? AS due, attempts + 1 AS attempts, max_attempts, expires,
    enqueue_at, created_at, ? AS updated_at, source_id, labels, payload
FROM items {_FREE} AND seq >= (SELECT p.head FROM lease_partitions AS p
    WHERE p.queue = items.queue AND p.partition = items.partition)
ORDER BY seq LIMIT ?
"""  # noqa: S608 -- made of constants
# The same again, from the first to the last one that was read, in one pass.
_LEASE: Final = f"""
UPDATE items SET held = 1, due = ?, attempts = attempts + 1, updated_at = ?
{_FREE} AND seq BETWEEN ? AND ?
"""  # noqa: S608 -- made of constants
# What returns to a queue has a new number, behind all others. Only what was passed
# over because it is dead may wait before those that are leased.
_ADVANCE: Final = """
UPDATE lease_partitions SET head = ? WHERE queue = ? AND partition = ?
AND NOT EXISTS (SELECT 1 FROM items WHERE due <= ?)
"""
# The plus: items are found by their numbers, not by looking through the queue.
_COMPLETE: Final = """
DELETE FROM items WHERE seq IN (SELECT value FROM json_each(?))
AND +queue = ? AND +partition = ? AND held = 1
"""
_FACTS_OF: Final = f"""
SELECT {FACTS} FROM items
WHERE seq IN (SELECT value FROM json_each(?)) AND +queue = ?
"""  # noqa: S608 -- made of constants

_partitions: Final = msgspec.json.Decoder(list[int]).decode


class Lent(Struct, frozen=True):
    """What was lent, as it was read; made into items on another thread."""

    queue: int
    found: list[Found]
    shares: list[tuple[int, Sequence[int]]]  # partition and places, by client

    def items(self) -> list[tuple[int, tuple[Item, ...]]]:
        """Partition and items, by client."""
        items = [item for found in self.found for item in found.items()]
        return [(n, tuple([items[at] for at in places])) for n, places in self.shares]


def new_rows(batches: Sequence[Sequence[NewItem]]) -> list[list[NewRow]]:
    """Items as they are stored."""
    return [
        [
            (
                item.enqueue_at,
                pack_labels(item.reference, item.encoding, item.kind),
                item.payload,
            )
            for item in batch
        ]
        for batch in batches
    ]


def produce(
    connection: sqlite3.Connection,
    name: str,
    batches: Sequence[Sequence[NewRow]],
    now: datetime,
) -> None:
    """Add items."""
    place = shelf(connection, name)
    seq = first_of(connection, sum(map(len, batches)))
    filled = loads(connection, place.number)
    changed: Loads = Loads()
    rows, later = [], []
    for batch in batches:
        partition = least_loaded(filled)
        filled[partition] += len(batch)
        changed[place.number, partition] += len(batch)
        for enqueue_at, labels, payload in batch:
            at = scheduled_for(enqueue_at, now)
            if at is None:
                rows.append((seq, partition, labels, payload))
            else:
                later.append((seq, partition, labels, payload, micros(at)))
            seq += 1
    time, life = micros(now), seconds(place.queue.expire_timeout)
    expires = time + life if place.mortal else None
    same = (place.number, place.queue.max_attempts, time, time)
    write(connection, _ADD, rows, ")", first=(*same, expires, expires))
    life_later = life if place.mortal else None
    write(connection, _SCHEDULE, later, ")", first=(*same, life_later))
    count(connection, changed)


def lease(
    connection: sqlite3.Connection, name: str, wants: Sequence[int], now: datetime
) -> Lent:
    """Lend items."""
    place = shelf(connection, name)
    time = micros(now)
    until = time + seconds(place.queue.lease_timeout)
    dead_by = time if place.mortal else -1
    handing: Round[int] = Round(wants, _by_head(connection, place))
    found: list[Found] = []
    lent = 0
    changed: Loads = Loads()
    while asked := handing.ask():
        for partition, limit in asked.items():
            values = (until, time, place.number, partition, dead_by)
            some = read_items(connection, _NEXT, (*values, limit))
            if some.count:
                connection.execute(_LEASE, (*values, some.first, some.last))
                connection.execute(_ADVANCE, (some.last + 1, *values[2:]))
            handing.give(partition, range(lent, lent + some.count))
            found.append(some)
            lent += some.count
            changed[place.number, partition] -= some.count
    count(connection, changed)
    return Lent(place.number, found, handing.shares())


class NotAllLeased(Exception):
    """Some request of the batch cannot be applied."""


def complete(
    connection: sqlite3.Connection, name: str, requests: Sequence[Completion]
) -> None:
    """Forget all items of all requests, or raise NotAllLeased."""
    place = shelf(connection, name)
    by_partition: dict[int, list[int]] = {}
    for request in requests:
        asked = numbers_of(request.ids)
        if len(asked) != len(request.ids):
            raise NotAllLeased
        by_partition.setdefault(request.partition, []).extend(asked)
    for partition, asked in by_partition.items():
        if not 0 <= partition < place.queue.partitions:
            raise NotAllLeased
        values = (numbers(asked), place.number, partition)
        if connection.execute(_COMPLETE, values).rowcount != len(asked):
            raise NotAllLeased


def complete_some(
    connection: sqlite3.Connection, name: str, requests: Sequence[Completion]
) -> list[Denial | None]:
    """Forget the items of those requests that can be applied, and say of which not."""
    place = shelf(connection, name)
    known = _facts(connection, place, [id_ for one in requests for id_ in one.ids])
    answers = []
    for request in requests:
        wrong = denial(place, request.partition, request.ids, known)
        answers.append(wrong)
        if wrong is None:
            done = numbers_of(request.ids)
            connection.execute(
                _COMPLETE, (numbers(done), place.number, request.partition)
            )
            for number in done:
                del known[number]
    return answers


def retry(
    connection: sqlite3.Connection,
    name: str,
    requests: Sequence[Retrial],
    now: datetime,
) -> tuple[list[Denial | Sequence[Departed]], set[str]]:
    """Give items back; also the queues that have something to lease then."""
    place = shelf(connection, name)
    ids = [item.id for request in requests for item in request.items]
    plan = Plan()
    known = _facts(connection, place, ids)
    answers = sort_retrials(plan, place, requests, known, now)
    carry_out(connection, plan, now)
    return answers, plan.ready()


def _by_head(connection: sqlite3.Connection, place: Shelf) -> list[int]:
    if place.queue.partitions == 1:
        return [0]
    (packed,) = connection.execute(_HEADS, (place.number,)).fetchone()
    return _partitions(packed)


def _facts(
    connection: sqlite3.Connection, place: Shelf, ids: Sequence[str]
) -> dict[int, Fact]:
    values = (numbers(numbers_of(ids)), place.number)
    (packed,) = connection.execute(_FACTS_OF, values).fetchone()
    return {fact.number: fact for _, fact in facts(packed)}
