"""Letters of a campaign: taken bit by bit, sent, and settled as news comes in."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.audit import act
from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.letter import By, State
from deadletter.core.replaying import SETTLED_FROM, Going, heard, is_out, judge, landing
from deadletter.ports.letters import ReplaySettled, ReplayTaken

from .audit import append
from .campaigns import Course, existing
from .groups import Shifts
from .groups import count as count_letters
from .letters_moves import Brief, brief_of, given, set_states
from .letters_whole import messages
from .replay_items import Tally, count, finish, mark
from .rows import micros
from .sql import fetch, ids, numbers, packed

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
GIVEN: Final = f"{_HEADS}, l.size, c.rest {_AGAIN}"
NEXT: Final = f"{_HEADS}, l.size, c.rest {_ON}"
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
_MOVE_ON: Final = "UPDATE campaigns SET taken = ? WHERE seq = ?"
# By that index, or SQLite would go through the whole campaign every time.
_SENT: Final = """
UPDATE campaign_items INDEXED BY campaign_items_sending
SET outcome = 'sent', sent_at = ?
WHERE campaign = ? AND outcome = 'sending' AND letter IN (
    SELECT l.seq FROM json_each(?) CROSS JOIN letters l ON l.id = value)
"""
_COPIES: Final = """
SELECT l.seq, l.id, l.source, l.fingerprint, l.state, l.replays, i.generation,
       i.campaign, i.ordinal, i.outcome, g.cap, json_extract(value, '$[2]') AS news
FROM json_each(?) CROSS JOIN letters l ON l.id = json_extract(value, '$[0]')
CROSS JOIN campaign_items i
    ON i.letter = l.seq AND i.generation = json_extract(value, '$[1]')
CROSS JOIN campaigns g ON g.seq = i.campaign
"""
_COPIES_COLUMNS: Final = """
seq, id, source, fingerprint, state, replays, generation, campaign, ordinal, outcome,
cap, news
"""


def take_next(
    connection: sqlite3.Connection, campaign: str, limit: int, now: datetime
) -> list[ReplayTaken]:
    """Claim the next letters of a running campaign, the interrupted ones first."""
    stands = existing(connection, campaign)
    if stands.state is not CampaignState.RUNNING:
        return []
    taken = _take_again(connection, stands, limit, now)

    def take_some(start: int, end: int) -> int:
        found = _take_planned(connection, stands, start, end, now)
        taken.extend(found)
        return len(found)

    go_on(connection, stands, limit - len(taken), take_some)
    return taken


def go_on(
    connection: sqlite3.Connection,
    stands: Course,
    limit: int,
    some: Callable[[int, int], int],
) -> None:
    """Go through planned items, until `some` of them made up the limit."""
    place, got = stands.taken, 0
    while place < stands.items and got < limit:
        end = min(place + limit - got, stands.items)
        got += some(place, end)
        place = end
    connection.execute(_MOVE_ON, (place, stands.seq))
    finish(connection, [stands.seq])


def sent(
    connection: sqlite3.Connection, campaign: str, letters: Sequence[str], now: datetime
) -> None:
    """Record that the broker has the copies of these letters."""
    seq = existing(connection, campaign).seq
    n = connection.execute(_SENT, (micros(now), seq, ids(letters))).rowcount
    count(connection, Counter({(seq, Outcome.SENDING): -n, (seq, Outcome.SENT): n}))


def settle(
    connection: sqlite3.Connection, news: Sequence[ReplaySettled], now: datetime
) -> None:
    """Record what became of copies; campaigns may end by it."""
    told = [
        (*copy, outcome)
        for copy, outcome in heard(
            (one.letter_id, one.generation, one.outcome) for one in news
        ).items()
        if copy[0].isascii()
    ]
    rows = fetch(connection, _COPIES_COLUMNS, _COPIES, (packed(told),)) if told else []
    targets: dict[Brief, State] = {}
    ordinals: defaultdict[tuple[int, Outcome], list[int]] = defaultdict(list)
    tally: Tally = Counter()
    for row in rows:
        replays, generation, campaign, ordinal, before, cap, after = row[5:]
        outcome = Outcome(after)
        if before not in SETTLED_FROM[outcome]:
            continue
        ordinals[campaign, outcome].append(ordinal)
        tally[campaign, Outcome(before)] -= 1
        tally[campaign, outcome] += 1
        brief = brief_of(row)
        state = landing(brief.state, replays, generation, outcome, cap)
        if state is not None:
            targets[brief] = state
    if not ordinals:
        return
    set_states(connection, targets)
    for (campaign, outcome), some in ordinals.items():
        mark(connection, campaign, some, outcome, now)
    count(connection, tally)
    finish(connection, {campaign for campaign, _ in ordinals})


def interrupted(
    connection: sqlite3.Connection, stands: Course, limit: int, now: datetime
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
    return again


def _take_again(
    connection: sqlite3.Connection, stands: Course, limit: int, now: datetime
) -> list[ReplayTaken]:
    again = interrupted(connection, stands, limit, now)
    if not again:
        return []
    wanted = {"campaign": stands.seq, "ordinals": numbers(again)}
    return [
        ReplayTaken(row[1], row[2], message, row[5])
        for row, message in messages(connection, _COPIED, _GIVEN, wanted)
    ]


def _take_planned(
    connection: sqlite3.Connection, stands: Course, start: int, end: int, now: datetime
) -> list[ReplayTaken]:
    """Those of the letters planned from `start` to `end` that may go out."""
    span: dict[str, Any] = {"campaign": stands.seq, "start": start, "end": end}
    found = messages(connection, _COPIED, _NEXT, span)
    going = judge(range(start, end), [row for row, _ in found], stands.cap)
    record(connection, stands, going, Outcome.SENDING, now)
    return [
        ReplayTaken(row[1], row[2], message, row[5] + 1)
        for row, message in found
        if row[6] not in going.left
    ]


def record(
    connection: sqlite3.Connection,
    stands: Course,
    going: Going,
    outcome: Outcome,
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
    n = going.moved.total()
    tally = {(stands.seq, Outcome.PLANNED): -n, (stands.seq, outcome): n}
    count(connection, Counter(tally))
    if going.left:
        _skip(connection, stands, list(going.left), Outcome.PLANNED, now)
        _quarantine(connection, stands, going.past_cap, now)


def _skip(
    connection: sqlite3.Connection,
    stands: Course,
    ordinals: Sequence[int],
    before: Outcome,
    now: datetime,
) -> None:
    mark(connection, stands.seq, ordinals, Outcome.SKIPPED, now)
    n = len(ordinals)
    tally = {(stands.seq, before): -n, (stands.seq, Outcome.SKIPPED): n}
    count(connection, Counter(tally))


def _quarantine(
    connection: sqlite3.Connection, stands: Course, letters: list[str], now: datetime
) -> None:
    found = given(connection, letters)
    set_states(connection, dict.fromkeys(found, State.QUARANTINED))
    by = By(stands.actor, f"replayed {stands.cap} times, which is the cap")
    detail = f"by campaign {stands.id}"
    append(
        connection,
        [act("quarantine", b.id, by, at=now, detail=detail) for b in found],
    )
