"""Letters of a campaign: taken bit by bit, sent, and settled as news comes in."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.letter import State
from deadletter.core.packing import unpack_message
from deadletter.core.replay_rules import Going, Moved, is_out, judge, still_needed
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import Shifts
from deadletter.office.transactions.outcomes import quarantine
from deadletter.ports.letters import ReplayNext, ReplayTaken

from .audit import OPENED, STATES, counted, opened
from .campaigns import PostgresqlCourse, existing, missing
from .database import Connection
from .letter_operations import BRIEF, PostgresqlOperations
from .letters_rows import JOINED, WHOLE, check_body
from .replays import (
    changes,
    check_counted,
    count,
    counting,
    finish,
    free_behind,
    freed,
    hold_behind,
    mark,
    planned,
)
from .rows import legible

_HEADS: Final = f"SELECT {BRIEF}, i.ordinal"
_AGAIN: Final = f"""
FROM deadletter.campaign_items i JOIN ({WHOLE}) ON l.seq = i.letter
WHERE i.campaign = $1 AND i.ordinal = ANY($2) ORDER BY i.ordinal FOR UPDATE OF m
"""
_ON: Final = f"""
FROM unnest($1::bigint[], $2::int[]) AS i (letter, ordinal)
JOIN ({WHOLE}) ON l.seq = i.letter ORDER BY i.ordinal
"""
_GIVEN: Final = f"{_HEADS}, c.digest, c.rest, c.body {_AGAIN}"
_NEXT: Final = f"{_HEADS}, c.digest, c.rest, c.body {_ON}"
# Without bodies, for those who do not need to see them.
_PLAIN: Final = f"{_HEADS}, l.size, c.rest, c.digest, c.mark, c.mark_key"
GIVEN: Final = f"{_PLAIN} {_AGAIN}"
NEXT: Final = f"{_PLAIN} {_ON}"
_PLACE: Final = """
SELECT seq, state, taken, keyed FROM deadletter.campaigns WHERE id = $1
"""
_READY: Final = """
SELECT letter FROM deadletter.campaign_waiting WHERE campaign = $1 AND ready
ORDER BY place LIMIT $2
"""
_UPCOMING: Final = f"""
SELECT l.id, l.source, coalesce(nullif(l.business_key, ''), l.message_id), m.replays
FROM unnest($1::bigint[], $2::int[]) AS i (letter, ordinal)
JOIN ({JOINED}) ON l.seq = i.letter ORDER BY i.ordinal
"""  # noqa: S608 -- made of constants
_LOCK: Final = """
SELECT FROM deadletter.letter_marks WHERE letter = ANY($1) ORDER BY letter FOR UPDATE
"""
_SENDING: Final = """
SELECT i.ordinal, i.generation, m.state, m.replays
FROM deadletter.campaign_items i
LEFT JOIN deadletter.letter_marks m ON m.letter = i.letter
WHERE i.campaign = $1 AND i.outcome = 'sending' AND i.ordinal >= $2 AND i.ordinal < $3
ORDER BY i.ordinal LIMIT $4
"""
MOVE: Final = """
UPDATE deadletter.letter_marks m
SET state = 'replaying', replays = m.replays + 1, revision = m.revision + 1
"""
NOTE: Final = """
INSERT INTO deadletter.campaign_items
    (campaign, outcome, taken_at, sent_at, ordinal, letter, generation)
SELECT $2, $3, $4, $5, ordinal, letter, replays + 1
"""
"""Notes those taken: their ordinal, letter, and how often they went before."""

_TAKE: Final = f"""
WITH moved AS ({MOVE} WHERE letter = ANY($1))
{NOTE} FROM unnest($1::bigint[], $6::int[], $7::bigint[])
    AS g (letter, ordinal, replays)
"""
_SKIP: Final = """
INSERT INTO deadletter.campaign_items (campaign, outcome, settled_at, ordinal, letter)
SELECT $1, $2, $3, * FROM unnest($4::int[], $5::bigint[])
"""
_SKIPPED: Final = """
SELECT n.letter, l.id, m.state, m.replays FROM unnest($1::bigint[]) AS n (letter)
LEFT JOIN deadletter.letters l ON l.seq = n.letter
LEFT JOIN deadletter.letter_marks m ON m.letter = n.letter
"""
_OF_ITEMS: Final = """
SELECT letter FROM deadletter.campaign_items WHERE campaign = $1 AND ordinal = ANY($2)
"""
_LATE: Final = "UPDATE deadletter.campaigns SET late = $2 WHERE seq = $1"
_COUNT_TAKEN: Final = f"""
WITH {OPENED}, {STATES} {counting(9)}
"""
_MOVE_ON: Final = """
WITH taken AS (
    DELETE FROM deadletter.campaign_plans WHERE campaign = $1 AND until <= $2
)
UPDATE deadletter.campaigns SET taken = $2, surely = $3 WHERE seq = $1
"""
_SENT: Final = """
WITH course AS MATERIALIZED (
    SELECT seq FROM deadletter.campaigns WHERE id = $1
), sent AS (
    UPDATE deadletter.campaign_items SET outcome = 'sent', sent_at = $2
    WHERE {which} AND outcome = 'sending' RETURNING letter
)
SELECT seq, ARRAY(SELECT letter FROM sent) FROM course
"""
# The plus keeps the index of whole campaigns out of it.
_SENT_LETTERS: Final = _SENT.format(
    which="""campaign + 0 = (SELECT seq FROM course) AND letter = ANY(ARRAY(
        SELECT seq FROM deadletter.letters WHERE id = ANY($3)))"""
)
_SENT_ITEMS: Final = _SENT.format(which="campaign = (SELECT seq FROM course) AND ordinal = ANY($3)")


async def next_planned(connection: Connection, campaign: str, limit: int) -> list[ReplayNext]:
    """The next planned letters of a running campaign."""
    row = await connection.fetchrow(_PLACE, stored(campaign))
    if row is None:
        raise missing(campaign)
    seq, state, taken, keyed = row
    if state != CampaignState.RUNNING:
        return []
    ready = await connection.fetch(_READY, seq, limit) if keyed else []
    plan = await planned(connection, seq, taken, taken + limit - len(ready))
    letters = [*(letter for (letter,) in ready), *plan.values()]
    rows = await connection.fetch(_UPCOMING, letters, [*range(len(letters))])
    return [ReplayNext(*legible(row)) for row in rows]


async def take_next(  # noqa: PLR0917 -- as the port has it
    connection: Connection,
    campaign: str,
    limit: int,
    leave_out: frozenset[str] | None,
    keys: int | None,
    now: datetime,
) -> dict[int, ReplayTaken]:
    """
    Claim the next letters of a running campaign, the interrupted ones first.

    They come by their ordinals, which `sent` is glad to be told again.
    """
    stands = await existing(connection, campaign)
    if stands.state is not CampaignState.RUNNING:
        return {}
    again, surely = await interrupted(connection, stands, limit, now)
    surely = again[0] if again else surely
    again += await interrupted_late(connection, stands, limit - len(again), now)
    taken: dict[int, ReplayTaken] = {}
    if again:
        rows = await connection.fetch(_GIVEN, stands.seq, again)
        taken |= {row[6]: _taken(row, row[5]) for row in rows}

    async def take_planned(plan: Mapping[int, int]) -> int:
        rows = await upcoming(connection, _NEXT, plan)
        going = judge([*plan], rows, stands.cap, leave_out or ())
        await record(connection, stands, going, plan, Outcome.SENDING, leave_out, now)
        taken.update((row[6], _taken(row, row[5] + 1)) for row in going.rows)
        return len(going.rows)

    async def take_some(start: int, end: int) -> int:
        return await take_planned(await planned(connection, stands.seq, start, end))

    waited = await freed(connection, stands, limit - len(taken))
    left = limit - len(taken) - len(waited)
    if waited:
        await take_planned(waited)
    once = leave_out is not None
    place = await go_on(stands, fewer(left, keys), take_some, once=once)
    await move_on(connection, stands, place, surely)
    return taken


async def upcoming(connection: Connection, select: str, plan: Mapping[int, int]) -> Sequence[Any]:
    """Planned letters as they are; nobody else changes them before the end."""
    letters = [*plan.values()]
    # By itself, so that all that is read afterwards is what was locked.
    await connection.execute(_LOCK, letters)
    rows: list[Any] = await connection.fetch(select, letters, [*plan])
    return rows


async def go_on(
    stands: PostgresqlCourse,
    limit: int,
    some: Callable[[int, int], Awaitable[int]],
    *,
    once: bool = False,
) -> int:
    """
    Go through planned items, until `some` made up the limit, or `once`.

    Returns how far it went.
    """
    place, got = stands.taken, 0
    while place < stands.free and got < limit:
        end = min(place + limit - got, stands.free)
        got += await some(place, end)
        place = end
        if once:
            break
    return place


def fewer(limit: int, keys: int | None) -> int:
    """How many planned letters may go, of keys that none went of."""
    return limit if keys is None else min(limit, keys)


async def move_on(
    connection: Connection, stands: PostgresqlCourse, taken: int, surely: int
) -> None:
    """Write down how far a campaign has come; it may end by that."""
    if (taken, surely) != (stands.taken, stands.surely):
        await connection.execute(_MOVE_ON, stands.seq, taken, surely)
    if taken == stands.free:
        await finish(connection, [stands.seq])


async def sent(
    connection: Connection,
    campaign: str,
    letters: Sequence[str],
    ordinals: Sequence[int],
    now: datetime,
) -> None:
    """Record that the broker has the copies of these letters, and of these items."""
    if letters or not ordinals:
        wanted = [stored(id_) for id_ in letters]
        row = await connection.fetchrow(_SENT_LETTERS, stored(campaign), now, wanted)
        await _count_sent(connection, campaign, row)
    if ordinals:
        row = await connection.fetchrow(_SENT_ITEMS, stored(campaign), now, ordinals)
        await _count_sent(connection, campaign, row)


async def _count_sent(connection: Connection, campaign: str, row: Any) -> None:
    if row is None:
        raise missing(campaign)
    seq, letters = row
    await count(connection, {(seq, Outcome.SENDING, Outcome.SENT): letters})


async def interrupted(
    connection: Connection, stands: PostgresqlCourse, limit: int, now: datetime
) -> tuple[list[int], int]:
    """
    What was taken but never reported as sent, unless somebody took it back.

    Also the ordinal before which there is nothing of the kind beside these.
    """
    again: list[int] = []
    gone: list[int] = []
    surely = stands.surely
    while len(again) < limit and surely < stands.taken:
        rows = await connection.fetch(
            _SENDING, stands.seq, surely, stands.taken, limit - len(again)
        )
        if not rows:
            surely = stands.taken
            break
        for ordinal, generation, state, replays in rows:
            is_there = state is not None
            is_ours = is_there and is_out(State(state), replays, generation)
            (again if is_ours else gone).append(ordinal)
        surely = rows[-1][0] + 1
    await _take_back(connection, stands, gone, now)
    return again, surely


async def interrupted_late(
    connection: Connection, stands: PostgresqlCourse, limit: int, now: datetime
) -> list[int]:
    """What was taken after it had waited for its key, but never reported as sent."""
    if not stands.keyed or limit <= 0:
        return []
    rows = await connection.fetch(_SENDING, stands.seq, stands.late, stands.items, limit)
    late = rows[0][0] if rows else stands.items
    if late != stands.late:
        await connection.execute(_LATE, stands.seq, late)
    again: list[int] = []
    gone: list[int] = []
    for ordinal, generation, state, replays in rows:
        is_there = state is not None
        is_ours = is_there and is_out(State(state), replays, generation)
        (again if is_ours else gone).append(ordinal)
    await _take_back(connection, stands, gone, now)
    return again


async def record(  # noqa: PLR0917 -- a step of both ways to send
    connection: Connection,
    stands: PostgresqlCourse,
    going: Going,
    plan: Mapping[int, int],
    outcome: Outcome,
    leave_out: Collection[str] | None,
    now: datetime,
) -> None:
    """Write down that these are on their way, or sent, and why others are not."""
    if going.rows:
        sent_at = now if outcome is Outcome.SENT else None
        letters, replays, ordinals = ([row[column] for row in going.rows] for column in (0, 5, 6))
        noted = (stands.seq, outcome, now, sent_at)
        await connection.execute(_TAKE, letters, *noted, ordinals, replays)
        await count_taken(connection, stands, going.moved, outcome, letters)
    if going.left:
        skipped = (stands.seq, Outcome.SKIPPED, now)
        letters = [plan[ordinal] for ordinal in going.left]
        await connection.execute(_SKIP, *skipped, [*going.left], letters)
        await _count_skipped(connection, stands, letters, Outcome.PLANNED)
        await _end_keys(connection, stands, letters, leave_out or (), now)
        past_cap = [shown(id_) for id_ in going.past_cap]
        await quarantine(PostgresqlOperations(connection), stands, past_cap, now)


async def count_taken(
    connection: Connection,
    stands: PostgresqlCourse,
    moved: Moved,
    outcome: Outcome,
    letters: Collection[int],
) -> None:
    """Count letters that were planned and are on their way now, or sent."""
    changed = await changes(connection, {(stands.seq, Outcome.PLANNED, outcome): letters})
    done = await connection.execute(_COUNT_TAKEN, *_counted(moved), *changed)
    check_counted(done, changed)


def _counted(leaving: Moved) -> list[Any]:
    shifts: Shifts = Counter()
    for (source, fingerprint, before), n in leaving.items():
        name, print_ = shown(source), shown(fingerprint)
        shifts[name, print_, State(before)] -= n
        shifts[name, print_, State.REPLAYING] += n
    states, by_open = counted(shifts)
    return [*states, *opened(by_open)]


def _taken(row: Any, generation: int) -> ReplayTaken:
    id_, digest, rest, body = row[1], row[7], row[8], row[9]
    check_body(id_, body, digest)
    message = unpack_message(rest, body)
    return ReplayTaken(shown(id_), shown(row[2]), message, generation)


async def _take_back(
    connection: Connection, stands: PostgresqlCourse, gone: Sequence[int], now: datetime
) -> None:
    """Skip items whose letters somebody took back before they were sent."""
    if not gone:
        return
    await mark(connection, stands.seq, gone, Outcome.SKIPPED, now)
    rows = await connection.fetch(_OF_ITEMS, stands.seq, gone)
    letters = [letter for (letter,) in rows]
    await _count_skipped(connection, stands, letters, Outcome.SENDING)
    await _end_keys(connection, stands, letters, (), now)


async def _end_keys(
    connection: Connection,
    stands: PostgresqlCourse,
    letters: Sequence[int],
    leave_out: Collection[str],
    now: datetime,
) -> None:
    """Say what becomes of those that wait behind letters which were skipped."""
    if not stands.keyed:
        return
    freeing: list[int] = []
    holding: list[int] = []
    for letter, id_, state, replays in await connection.fetch(_SKIPPED, letters):
        needed = (
            state is not None
            and id_ not in leave_out
            and still_needed(State(state), replays, stands.cap)
        )
        (holding if needed else freeing).append(letter)
    await free_behind(connection, stands.seq, freeing)
    await hold_behind(connection, stands.seq, holding, now)


async def _count_skipped(
    connection: Connection, stands: PostgresqlCourse, letters: Sequence[int], before: Outcome
) -> None:
    await count(connection, {(stands.seq, before, Outcome.SKIPPED): letters})
