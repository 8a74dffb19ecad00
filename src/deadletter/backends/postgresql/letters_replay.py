"""Letters of a campaign: taken bit by bit, sent, and settled as news comes in."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.audit import act
from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.escaping import shown, stored
from deadletter.core.letter import By, State
from deadletter.core.packing import unpack_message
from deadletter.core.replaying import (
    SETTLED_FROM,
    Going,
    Moved,
    heard,
    is_out,
    judge,
    landing,
)
from deadletter.ports.letters import ReplaySettled, ReplayTaken

from .audit import append
from .campaigns import Course, existing, missing
from .counting import OPENED, STATES, Shifts, counted, opened
from .letters_moves import BRIEF, Brief, brief_of, given, set_states
from .letters_rows import WHOLE, check_body
from .plans import planned
from .pool import Connection
from .replay_items import Tally, count, finish, mark

_HEADS: Final = f"SELECT {BRIEF}, m.replays, i.ordinal"
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
GIVEN: Final = f"{_HEADS}, l.size, c.rest {_AGAIN}"
NEXT: Final = f"{_HEADS}, l.size, c.rest {_ON}"
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
SELECT $1, $2, $3, w.ordinal, p.letters[w.ordinal - p.first + 1]
FROM unnest($4::int[]) AS w (ordinal) JOIN deadletter.campaign_plans p
ON p.campaign = $1 AND p.until > w.ordinal AND p.first <= w.ordinal
"""
_COUNT_TAKEN: Final = f"""
WITH {OPENED}, {STATES}
INSERT INTO deadletter.campaign_outcomes AS t (campaign, outcome, n)
VALUES ($9, 'planned', -$10::bigint), ($9, $11, $10)
ON CONFLICT (campaign, outcome) DO UPDATE SET n = t.n + excluded.n
"""  # noqa: S608 -- made of constants
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
    WHERE {which} AND outcome = 'sending' RETURNING campaign
), news AS (
    SELECT campaign, count(*) AS n FROM sent GROUP BY campaign
), counted AS (
    INSERT INTO deadletter.campaign_outcomes AS t (campaign, outcome, n)
    SELECT campaign, 'sending', -n FROM news
    UNION ALL SELECT campaign, 'sent', n FROM news
    ON CONFLICT (campaign, outcome) DO UPDATE SET n = t.n + excluded.n
)
SELECT seq FROM course
"""
# The plus keeps the index of whole campaigns out of it.
_SENT_LETTERS: Final = _SENT.format(
    which="""campaign + 0 = (SELECT seq FROM course) AND letter = ANY(ARRAY(
        SELECT seq FROM deadletter.letters WHERE id = ANY($3)))"""
)
_SENT_ITEMS: Final = _SENT.format(
    which="campaign = (SELECT seq FROM course) AND ordinal = ANY($3)"
)
_COPIES: Final = f"""
WITH l AS MATERIALIZED (
    SELECT seq, id, source FROM deadletter.letters WHERE id = ANY($1))
SELECT {BRIEF}, m.replays, i.generation, i.campaign, i.ordinal, i.outcome, c.cap
FROM l JOIN deadletter.letter_marks m ON m.letter = l.seq
JOIN deadletter.campaign_items i ON i.letter = l.seq
JOIN deadletter.campaigns c ON c.seq = i.campaign
WHERE m.letter = ANY(ARRAY(SELECT seq FROM l))
AND i.letter = ANY(ARRAY(SELECT seq FROM l))
AND i.outcome IN ('sending', 'sent', 'confirmed')
ORDER BY l.id FOR UPDATE OF m, i
"""  # noqa: S608 -- made of constants


async def take_next(
    connection: Connection, campaign: str, limit: int, now: datetime
) -> dict[int, ReplayTaken]:
    """
    Claim the next letters of a running campaign, the interrupted ones first.

    They come by their ordinals, which `sent` is glad to be told again.
    """
    stands = await existing(connection, campaign)
    if stands.state is not CampaignState.RUNNING:
        return {}
    again, surely = await interrupted(connection, stands, limit, now)
    taken: dict[int, ReplayTaken] = {}
    if again:
        rows = await connection.fetch(_GIVEN, stands.seq, again)
        taken |= {row[6]: _taken(row, row[5]) for row in rows}
        surely = again[0]

    async def take_some(start: int, end: int) -> int:
        plan = await planned(connection, stands.seq, start, end)
        rows = await upcoming(connection, _NEXT, plan)
        going = judge([*plan], rows, stands.cap)
        await record(connection, stands, going, Outcome.SENDING, now)
        taken.update((row[6], _taken(row, row[5] + 1)) for row in going.rows)
        return len(going.rows)

    place = await go_on(stands, limit - len(taken), take_some)
    await move_on(connection, stands, place, surely)
    return taken


async def upcoming(
    connection: Connection, select: str, plan: Mapping[int, int]
) -> Sequence[Any]:
    """Planned letters as they are; nobody else changes them before the end."""
    letters = [*plan.values()]
    # By itself, so that all that is read afterwards is what was locked.
    await connection.execute(_LOCK, letters)
    rows: list[Any] = await connection.fetch(select, letters, [*plan])
    return rows


async def go_on(
    stands: Course, limit: int, some: Callable[[int, int], Awaitable[int]]
) -> int:
    """Go through planned items, until `some` made up the limit; says how far."""
    place, got = stands.taken, 0
    while place < stands.items and got < limit:
        end = min(place + limit - got, stands.items)
        got += await some(place, end)
        place = end
    return place


async def move_on(
    connection: Connection, stands: Course, taken: int, surely: int
) -> None:
    """Write down how far a campaign has come; it may end by that."""
    if (taken, surely) != (stands.taken, stands.surely):
        await connection.execute(_MOVE_ON, stands.seq, taken, surely)
    if taken == stands.items:
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
        if not await connection.fetch(_SENT_LETTERS, stored(campaign), now, wanted):
            raise missing(campaign)
    if ordinals:
        await connection.execute(_SENT_ITEMS, stored(campaign), now, ordinals)


async def settle(
    connection: Connection, news: Sequence[ReplaySettled], now: datetime
) -> None:
    """Record what became of copies; campaigns may end by it."""
    told = heard((stored(one.letter_id), one.generation, one.outcome) for one in news)
    rows = await connection.fetch(_COPIES, list({id_ for id_, _ in told}))
    targets: dict[Brief, State] = {}
    ordinals: defaultdict[tuple[int, Outcome], list[int]] = defaultdict(list)
    tally: Tally = Counter()
    for row in rows:
        replays, generation, campaign, ordinal, before, cap = row[5:]
        outcome = told.get((row[1], generation))
        if outcome is None or before not in SETTLED_FROM[outcome]:
            continue  # news of another copy, or none at all
        ordinals[campaign, outcome].append(ordinal)
        tally[campaign, Outcome(before)] -= 1
        tally[campaign, outcome] += 1
        brief = brief_of(row)
        state = landing(brief.state, replays, generation, outcome, cap)
        if state is not None:
            targets[brief] = state
    await set_states(connection, targets)
    for (campaign, outcome), some in ordinals.items():
        await mark(connection, campaign, some, outcome, now)
    await count(connection, tally)
    if ordinals:
        await finish(connection, {campaign for campaign, _ in ordinals})


async def interrupted(
    connection: Connection, stands: Course, limit: int, now: datetime
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
    if gone:
        await mark(connection, stands.seq, gone, Outcome.SKIPPED, now)
        await _count_skipped(connection, stands, len(gone), Outcome.SENDING)
    return again, surely


async def record(
    connection: Connection,
    stands: Course,
    going: Going,
    outcome: Outcome,
    now: datetime,
) -> None:
    """Write down that these are on their way, or sent, and why others are not."""
    if going.rows:
        sent_at = now if outcome is Outcome.SENT else None
        letters, replays, ordinals = (
            [row[column] for row in going.rows] for column in (0, 5, 6)
        )
        noted = (stands.seq, outcome, now, sent_at)
        await connection.execute(_TAKE, letters, *noted, ordinals, replays)
        await count_taken(connection, stands, going.moved, outcome)
    if going.left:
        skipped = (stands.seq, Outcome.SKIPPED, now)
        await connection.execute(_SKIP, *skipped, [*going.left])
        await _count_skipped(connection, stands, len(going.left), Outcome.PLANNED)
        past_cap = [shown(id_) for id_ in going.past_cap]
        await _quarantine(connection, stands, past_cap, now)


async def count_taken(
    connection: Connection, stands: Course, moved: Moved, outcome: Outcome
) -> None:
    """Count letters that were planned and are on their way now, or sent."""
    counts = (*_counted(moved), stands.seq, moved.total(), outcome)
    await connection.execute(_COUNT_TAKEN, *counts)


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


async def _count_skipped(
    connection: Connection, stands: Course, n: int, before: Outcome
) -> None:
    tally = {(stands.seq, before): -n, (stands.seq, Outcome.SKIPPED): n}
    await count(connection, Counter(tally))


async def _quarantine(
    connection: Connection, stands: Course, letters: list[str], now: datetime
) -> None:
    if not letters:
        return
    found = await given(connection, letters)
    await set_states(connection, dict.fromkeys(found, State.QUARANTINED))
    by = By(stands.actor, f"replayed {stands.cap} times, which is the cap")
    detail = f"by campaign {stands.id}"
    acts = [act("quarantine", b.id, by, at=now, detail=detail) for b in found]
    await append(connection, acts)
