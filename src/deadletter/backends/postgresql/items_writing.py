"""Adding items, lending them, forgetting them: a batch is one statement."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.item_plans import (
    Fact,
    Plan,
    Shelf,
    denial,
    numbers_of,
    sort_retrials,
)
from deadletter.core.items import SOON, Completion, Denial, Departed, Retrial

from .items_moving import carry_out
from .items_queues import COUNT, MORTAL, SHARD, shelf
from .items_rows import FACTS, ITEM, fact
from .pool import Connection

# Somebody may have given the queue more partitions than we know of: then nothing is
# put into it, and the answer says how many there are.
PRODUCE: Final = f"""
WITH q AS MATERIALIZED (
    SELECT id, partitions, max_attempts, CASE WHEN {MORTAL}
        THEN make_interval(secs => expire_timeout) END AS life
    FROM deadletter.lease_queues q WHERE name = $1 FOR KEY SHARE
), put AS (
    INSERT INTO deadletter.items (seq, queue, partition, state, max_attempts,
        created_at, updated_at, enqueue_at, due, expires, labels, payload)
    SELECT nextval('deadletter.item_numbers'), q.id, coalesce(g.partition, 0),
        CASE WHEN g.at IS NULL THEN 0 ELSE 2 END, q.max_attempts, g.now, g.now, g.at,
        coalesce(g.at, g.now + q.life), coalesce(g.at, g.now) + q.life, g.labels,
        g.payload
    FROM q CROSS JOIN (
        SELECT partition, labels, payload, deadletter.clock() AS now,
            CASE WHEN at - deadletter.clock() >= make_interval(secs => {SOON})
                THEN at END AS at
        FROM unnest($3::int[], $4::timestamptz[], $5::bytea[], $6::bytea[])
            AS given (partition, at, labels, payload)) g
    WHERE q.partitions = $2
    RETURNING queue, partition
), counted AS (
    INSERT INTO deadletter.lease_loads AS t (queue, partition, shard, load)
    SELECT queue, partition, {SHARD}, count(*) FROM put
    GROUP BY queue, partition ORDER BY partition {COUNT}
)
SELECT partitions, pg_notify('deadletter', 'items:' || $1) FROM q
"""  # noqa: S608 -- made of constants
LOADS: Final = """
SELECT partition, sum(load)::bigint FROM deadletter.lease_loads
WHERE queue = (SELECT id FROM deadletter.lease_queues WHERE name = $1)
GROUP BY partition
"""
HEADS: Final = """
SELECT q.partitions, array_agg(p.partition ORDER BY head.seq)
    FILTER (WHERE head.seq IS NOT NULL)
FROM deadletter.lease_queues q CROSS JOIN generate_series(0, q.partitions - 1)
    AS p (partition)
LEFT JOIN LATERAL (
    SELECT seq FROM deadletter.items
    WHERE queue = q.id AND partition = p.partition AND state = 0
    ORDER BY seq LIMIT 1) head ON true
WHERE q.name = $1 GROUP BY q.partitions
"""
# What is dead by now is not lent any more, except where nothing dies.
LEASE: Final = f"""
WITH q AS MATERIALIZED (
    SELECT id, partitions, {MORTAL} AS mortal,
        deadletter.clock() + make_interval(secs => lease_timeout) AS until
    FROM deadletter.lease_queues q WHERE name = $1
), next AS MATERIALIZED (
    SELECT i.seq FROM q CROSS JOIN unnest($2::int[], $3::int[]) AS w (partition, n)
    CROSS JOIN LATERAL (
        SELECT seq FROM deadletter.items
        WHERE queue = q.id AND partition = w.partition AND state = 0
        AND (due IS NULL OR due > deadletter.clock() OR NOT q.mortal)
        ORDER BY seq LIMIT w.n FOR UPDATE SKIP LOCKED) i
), lent AS (
    UPDATE deadletter.items m
    SET state = 1, due = (SELECT until FROM q), attempts = m.attempts + 1,
        updated_at = deadletter.clock()
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM next))
    RETURNING m.queue, m.partition, {ITEM}
), counted AS (
    INSERT INTO deadletter.lease_loads AS t (queue, partition, shard, load)
    SELECT queue, partition, {SHARD}, -count(*) FROM lent
    GROUP BY queue, partition ORDER BY partition {COUNT}
)
SELECT q.partitions, m.partition, {ITEM} FROM q LEFT JOIN lent m ON true
"""  # noqa: S608 -- made of constants
# All of them or none. What is asked besides the number is said in one piece: items
# are found by their numbers, and by no other index, however few the planner expects.
# All or none: locking them first, only to see that all are there, costs as much again.
COMPLETE: Final = """
WITH gone AS (
    DELETE FROM deadletter.items
    WHERE seq = ANY($3::bigint[]) AND CASE WHEN partition = $2 AND state = 1 THEN queue
        END = (SELECT id FROM deadletter.lease_queues WHERE name = $1)
    RETURNING 1
)
SELECT deadletter.insist(count(*) = $4) FROM gone
"""
_DELETE: Final = "DELETE FROM deadletter.items WHERE seq = ANY($1::bigint[])"
_FACTS: Final = f"""
SELECT {FACTS} FROM deadletter.items m
WHERE m.seq = ANY($1::bigint[]) ORDER BY m.seq FOR UPDATE
"""  # noqa: S608 -- made of constants
CLOCK: Final = "SELECT deadletter.clock()"


async def complete_some(
    connection: Connection, *, name: str, requests: Sequence[Completion]
) -> list[Denial | None]:
    """Forget the items of those requests that can be applied, and say of which not."""
    place = await shelf(connection, name)
    ids = [id_ for one in requests for id_ in one.ids]
    known = await _known(connection, place, ids)
    answers = []
    for request in requests:
        wrong = denial(place, request.partition, request.ids, known)
        answers.append(wrong)
        if wrong is None:
            done = numbers_of(request.ids)
            await connection.execute(_DELETE, done)
            for number in done:
                del known[number]
    return answers


async def retry(
    connection: Connection, *, name: str, requests: Sequence[Retrial]
) -> tuple[list[Denial | Sequence[Departed]], set[str]]:
    """Give items back; also the queues that have something to lease then."""
    place = await shelf(connection, name)
    now: datetime = await connection.fetchval(CLOCK)
    ids = [item.id for request in requests for item in request.items]
    known = await _known(connection, place, ids)
    plan = Plan()
    answers = sort_retrials(plan, place, requests, known, now)
    await carry_out(connection, plan)
    return answers, plan.ready()


async def _known(
    connection: Connection, place: Shelf, ids: Sequence[str]
) -> dict[int, Fact]:
    rows = await connection.fetch(_FACTS, numbers_of(ids))
    return {row[1]: fact(row) for row in rows if row[0] == place.number}
