"""Letters of a campaign: taken bit by bit, sent, and settled as news comes in."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.letter import State
from deadletter.core.replay_rules import Going, is_out, judge, still_needed
from deadletter.office.transactions.operations import Shifts, run_now
from deadletter.office.transactions.outcomes import quarantine
from deadletter.ports.letters import ReplayNext, ReplayTaken

from .campaigns import SqliteCourse, existing
from .groups import count as count_letters
from .letter_operations import SqliteOperations
from .letters_rows import messages
from .replays import count, finish, free_behind, freed, hold_behind, mark
from .sql import fetch, ids, micros, numbers

_COPIED: Final = "seq, id, source, fingerprint, state, replays, ordinal"
_ITEMS: Final = """
FROM campaign_items i
CROSS JOIN letters l ON l.seq = i.letter
CROSS JOIN letter_contents c ON c.letter = l.seq
WHERE i.campaign = :campaign
"""
_HEADS: Final = """
SELECT l.seq, l.id, l.source, l.fingerprint, l.state, l.replays, i.ordinal
"""
_AGAIN: Final = f"""{_ITEMS}
AND ordinal IN (SELECT value FROM json_each(:ordinals)) ORDER BY ordinal
"""  # noqa: S608 -- all of it is ours
_ON: Final = f"{_ITEMS} AND ordinal >= :start AND ordinal < :end ORDER BY ordinal"
_GIVEN: Final = f"{_HEADS}, c.digest, c.rest, c.body {_AGAIN}"
_NEXT: Final = f"{_HEADS}, c.digest, c.rest, c.body {_ON}"
# Without bodies, for those who do not need to see them.
GIVEN: Final = f"{_HEADS}, l.size, c.rest, c.digest, crc32(c.body) AS crc {_AGAIN}"
NEXT: Final = f"{_HEADS}, l.size, c.rest, c.digest, crc32(c.body) AS crc {_ON}"
_NAMED: Final = "id, source, name, replays"
_UPCOMING: Final = """
SELECT l.id, l.source, ifnull(nullif(l.business_key, ''), l.message_id) AS name,
    l.replays
FROM campaign_items i CROSS JOIN letters l ON l.seq = i.letter
WHERE i.campaign = ? AND i.ordinal >= ? AND i.ordinal < ? ORDER BY i.ordinal
"""
_READY: Final = """
SELECT l.id, l.source, ifnull(nullif(l.business_key, ''), l.message_id) AS name,
    l.replays
FROM campaign_waiting w CROSS JOIN letters l ON l.seq = w.letter
WHERE w.campaign = ? AND w.ready = 1 ORDER BY w.place LIMIT ?
"""
_SENDING: Final = """
SELECT i.ordinal, i.generation, l.state, l.replays
FROM campaign_items i INDEXED BY campaign_items_sending
LEFT JOIN letters l ON l.seq = i.letter
WHERE i.campaign = ? AND i.outcome = 'sending' AND i.ordinal > ?
ORDER BY i.ordinal LIMIT ?
"""
_GOING: Final = """
campaign = :campaign AND ordinal >= :start AND ordinal < :end
AND ordinal NOT IN (SELECT value FROM json_each(:skipped))
"""
_TAKE: Final = f"""
UPDATE letters SET state = 'replaying', replays = replays + 1, revision = revision + 1
WHERE seq IN (SELECT letter FROM campaign_items WHERE {_GOING})
"""  # noqa: S608 -- all of it is ours
_TAKEN: Final = f"""
UPDATE campaign_items SET outcome = :outcome, taken_at = :now, sent_at = :sent,
    generation = (SELECT replays FROM letters WHERE seq = letter)
WHERE {_GOING}
"""  # noqa: S608 -- all of it is ours
_SKIPPED: Final = """
SELECT i.letter, l.id, l.state, l.replays
FROM campaign_items i LEFT JOIN letters l ON l.seq = i.letter
WHERE i.campaign = ? AND i.ordinal IN (SELECT value FROM json_each(?))
"""
_MOVE_ON: Final = "UPDATE campaigns SET taken = ? WHERE seq = ?"
# By that index, or SQLite would go through the whole campaign every time.
_SENT: Final = """
UPDATE campaign_items INDEXED BY campaign_items_sending
SET outcome = 'sent', sent_at = ?
WHERE campaign = ? AND outcome = 'sending' AND letter IN (
    SELECT l.seq FROM json_each(?) CROSS JOIN letters l ON l.id = value)
RETURNING letter
"""


def upcoming(connection: sqlite3.Connection, campaign: str, limit: int) -> list[ReplayNext]:
    """The next planned letters of a running campaign."""
    stands = existing(connection, campaign)
    if stands.state is not CampaignState.RUNNING:
        return []
    found = [] if not stands.keyed else fetch(connection, _NAMED, _READY, (stands.seq, limit))
    end = min(stands.taken + limit - len(found), stands.free)
    span = (stands.seq, stands.taken, end)
    found += fetch(connection, _NAMED, _UPCOMING, span)
    return [ReplayNext(*row) for row in found]


def take_next(  # noqa: PLR0917 -- as the port has it
    connection: sqlite3.Connection,
    campaign: str,
    limit: int,
    leave_out: frozenset[str] | None,
    keys: int | None,
    now: datetime,
) -> list[ReplayTaken]:
    """Claim the next letters of a running campaign, the interrupted ones first."""
    stands = existing(connection, campaign)
    if stands.state is not CampaignState.RUNNING:
        return []
    taken = _take_again(connection, stands, limit, now)
    start, end = freed(connection, stands, limit - len(taken))

    def take_some(start: int, end: int) -> int:
        found = _take_planned(connection, stands, start, end, leave_out or (), now)
        taken.extend(found)
        return len(found)

    left = limit - len(taken) - (end - start)
    if end > start:
        take_some(start, end)
    once = leave_out is not None
    go_on(connection, stands, _fewer(left, keys), take_some, once=once)
    return taken


def go_on(
    connection: sqlite3.Connection,
    stands: SqliteCourse,
    limit: int,
    some: Callable[[int, int], int],
    *,
    once: bool = False,
) -> None:
    """Go through planned items, until `some` of them made up the limit, or `once`."""
    place, got = stands.taken, 0
    while place < stands.free and got < limit:
        end = min(place + limit - got, stands.free)
        got += some(place, end)
        place = end
        if once:
            break
    connection.execute(_MOVE_ON, (place, stands.seq))
    finish(connection, [stands.seq])


def _fewer(limit: int, keys: int | None) -> int:
    return limit if keys is None else min(limit, keys)


def sent(
    connection: sqlite3.Connection, campaign: str, letters: Sequence[str], now: datetime
) -> None:
    """Record that the broker has the copies of these letters."""
    seq = existing(connection, campaign).seq
    changed = connection.execute(_SENT, (micros(now), seq, ids(letters)))
    gone = [letter for (letter,) in changed]
    count(connection, {(seq, Outcome.SENDING, Outcome.SENT): gone})


def interrupted(
    connection: sqlite3.Connection, stands: SqliteCourse, limit: int, now: datetime
) -> list[int]:
    """What was taken but never reported as sent, unless somebody took it back."""
    again: list[int] = []
    gone: list[int] = []
    last = -1
    while rows := fetch(
        connection,
        "ordinal, generation, state, replays",
        _SENDING,
        (stands.seq, last, limit - len(again)),
    ):
        for ordinal, generation, state, replays in rows:
            is_there = state is not None
            is_ours = is_there and is_out(State(state), replays, generation)
            (again if is_ours else gone).append(ordinal)
        last = rows[-1][0]
    if gone:
        _skip(connection, stands, gone, Outcome.SENDING, now)
        _end_keys(connection, stands, gone, (), now)
    return again


def _take_again(
    connection: sqlite3.Connection, stands: SqliteCourse, limit: int, now: datetime
) -> list[ReplayTaken]:
    again = interrupted(connection, stands, limit, now)
    if not again:
        return []
    wanted = {"campaign": stands.seq, "ordinals": numbers(again)}
    return [
        ReplayTaken(row[1], row[2], message, row[5])
        for row, message in messages(connection, _COPIED, _GIVEN, wanted)
    ]


def _take_planned(  # noqa: PLR0917 -- a step of `take_next`
    connection: sqlite3.Connection,
    stands: SqliteCourse,
    start: int,
    end: int,
    leave_out: Collection[str],
    now: datetime,
) -> list[ReplayTaken]:
    """Those of the letters planned from `start` to `end` that may go out."""
    span: dict[str, Any] = {"campaign": stands.seq, "start": start, "end": end}
    found = messages(connection, _COPIED, _NEXT, span)
    rows = [row for row, _ in found]
    going = judge(range(start, end), rows, stands.cap, leave_out)
    record(connection, stands, going, Outcome.SENDING, leave_out, now)
    return [
        ReplayTaken(row[1], row[2], message, row[5] + 1)
        for row, message in found
        if row[6] not in going.left
    ]


def record(  # noqa: PLR0917 -- a step of both ways to send
    connection: sqlite3.Connection,
    stands: SqliteCourse,
    going: Going,
    outcome: Outcome,
    leave_out: Collection[str],
    now: datetime,
) -> None:
    """Write down that these are on their way, or sent, and why others are not."""
    shifts: Shifts = Counter()
    for (source, fingerprint, before), n in going.moved.items():
        shifts[source, fingerprint, State(before)] -= n
        shifts[source, fingerprint, State.REPLAYING] += n
    span = {
        "campaign": stands.seq,
        "start": going.ordinals[0],
        "end": going.ordinals[-1] + 1,
        "skipped": numbers(going.left),
        "now": micros(now),
        "outcome": outcome.value,
        "sent": micros(now) if outcome is Outcome.SENT else None,
    }
    connection.execute(_TAKE, span)
    connection.execute(_TAKEN, span)
    count_letters(connection, shifts)
    count(connection, {(stands.seq, Outcome.PLANNED, outcome): [row[0] for row in going.rows]})
    if going.left:
        left = list(going.left)
        _skip(connection, stands, left, Outcome.PLANNED, now)
        _end_keys(connection, stands, left, leave_out, now)
        _quarantine(connection, stands, going.past_cap, now)


def _skip(
    connection: sqlite3.Connection,
    stands: SqliteCourse,
    ordinals: Sequence[int],
    before: Outcome,
    now: datetime,
) -> None:
    skipped = mark(connection, stands.seq, ordinals, Outcome.SKIPPED, now)
    count(connection, {(stands.seq, before, Outcome.SKIPPED): skipped})


def _end_keys(
    connection: sqlite3.Connection,
    stands: SqliteCourse,
    ordinals: Sequence[int],
    leave_out: Collection[str],
    now: datetime,
) -> None:
    """Say what becomes of those that wait behind items which were skipped."""
    if not stands.keyed:
        return
    freeing: list[int] = []
    holding: list[int] = []
    values = (stands.seq, numbers(ordinals))
    for letter, id_, state, replays in fetch(
        connection, "letter, id, state, replays", _SKIPPED, values
    ):
        needed = (
            state is not None
            and id_ not in leave_out
            and still_needed(State(state), replays, stands.cap)
        )
        (holding if needed else freeing).append(letter)
    free_behind(connection, stands.seq, freeing)
    hold_behind(connection, stands.seq, holding, now)


def _quarantine(
    connection: sqlite3.Connection, stands: SqliteCourse, letters: list[str], now: datetime
) -> None:
    run_now(quarantine(SqliteOperations(connection), stands, letters, now))
