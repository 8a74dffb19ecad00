"""Letters of a campaign: taken bit by bit, sent, and settled as news comes in."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.letter import By, State
from deadletter.core.replaying import came_back, is_out, take
from deadletter.ports.letters import ReplaySettled, ReplayTaken

from .audit import act, append
from .campaigns import Course, existing
from .letters_moves import Brief, brief_of, count_moved, set_states
from .letters_rows import whole
from .replay_items import Item, Tally, count, finish, update
from .sql import Row, fetch, ids, numbers, packed

_ITEM: Final = "ordinal, seq, id, source, fingerprint, state, replays, generation"
_SELECT: Final = """
SELECT i.ordinal, l.seq, l.id, l.source, l.fingerprint, l.state, l.replays, i.generation
FROM campaign_items i LEFT JOIN letters l ON l.seq = i.letter
"""
_SENDING: Final = f"""{_SELECT}
WHERE i.campaign = ? AND i.outcome = 'sending' AND i.ordinal > ?
ORDER BY i.ordinal LIMIT ?
"""
_PLANNED: Final = f"""{_SELECT}
WHERE i.campaign = ? AND i.ordinal >= ? ORDER BY i.ordinal LIMIT ?
"""
_TAKE: Final = """
UPDATE letters SET state = 'replaying', replays = replays + 1, revision = revision + 1
WHERE seq IN (SELECT value FROM json_each(?))
"""
_TAKEN: Final = "UPDATE campaigns SET taken = ? WHERE seq = ?"
_WHOLE: Final = """
SELECT l.*, c.* FROM json_each(?) CROSS JOIN letters l ON l.seq = value
CROSS JOIN letter_contents c ON c.letter = l.seq
"""
_SENT: Final = """
UPDATE campaign_items SET outcome = 'sent'
WHERE campaign = ? AND outcome = 'sending' AND letter IN (
    SELECT l.seq FROM json_each(?) CROSS JOIN letters l ON l.id = value)
"""
_NEWS: Final = "seq, id, source, fingerprint, state, replays, generation, \
campaign, ordinal, outcome, cap, news"
# Only copies that are out can be settled: late news of old ones finds nothing.
_IS_OUT: Final = """
SELECT l.seq, l.id, l.source, l.fingerprint, l.state, l.replays, i.generation,
       i.campaign, i.ordinal, i.outcome, g.cap, json_extract(value, '$[2]') AS news
FROM json_each(?) CROSS JOIN letters l ON l.id = json_extract(value, '$[0]')
CROSS JOIN campaign_items i
    ON i.letter = l.seq AND i.generation = json_extract(value, '$[1]')
CROSS JOIN campaigns g ON g.seq = i.campaign
WHERE i.outcome IN ('sending', 'sent')
"""


def take_next(
    connection: sqlite3.Connection, campaign: str, limit: int, now: datetime
) -> list[ReplayTaken]:
    """Claim the next letters of a running campaign, the interrupted ones first."""
    stands = existing(connection, campaign)
    if stands.state is not CampaignState.RUNNING:
        return []
    taken = _take_again(connection, stands, limit)
    taken += _take_planned(connection, campaign, stands, limit - len(taken), now)
    finish(connection, [stands.seq])
    letters = whole(connection, _WHOLE, (numbers(taken),))
    return [ReplayTaken(letter, letter.head.replays) for _, letter in letters]


def sent(connection: sqlite3.Connection, campaign: str, letters: Sequence[str]) -> None:
    """Record that the broker has the copies of these letters."""
    stands = existing(connection, campaign)
    n = connection.execute(_SENT, (stands.seq, ids(letters))).rowcount
    sending, sent_ = Outcome.SENDING.value, Outcome.SENT.value
    count(connection, Counter({(stands.seq, sending): -n, (stands.seq, sent_): n}))


def settle(connection: sqlite3.Connection, news: Sequence[ReplaySettled]) -> None:
    """Record what became of copies that are out; campaigns may end by it."""
    first: dict[tuple[str, int], str] = {}
    for one in news:
        first.setdefault((one.letter_id, one.generation), one.outcome.value)
    given = [(*copy, outcome) for copy, outcome in first.items() if copy[0].isascii()]
    found = fetch(connection, _NEWS, _IS_OUT, (packed(given),)) if given else []
    if not found:
        return
    targets: dict[Brief, State] = {}
    items: list[Item] = []
    tally: Tally = Counter()
    for row in found:
        brief = brief_of(row)
        replays, generation, seq, ordinal, outcome, cap, outcome_now = row[5:]
        items.append((seq, ordinal, generation, outcome_now))
        tally[seq, outcome] -= 1
        tally[seq, outcome_now] += 1
        if is_out(brief.state, replays, generation):
            confirmed = outcome_now == Outcome.CONFIRMED
            targets[brief] = State.REPLAYED if confirmed else came_back(replays, cap)
    set_states(connection, targets)
    update(connection, items)
    count(connection, tally)
    finish(connection, {item[0] for item in items})


def _take_again(
    connection: sqlite3.Connection, stands: Course, limit: int
) -> list[int]:
    """What was taken but never reported as sent, unless somebody took it back."""
    taken: list[int] = []
    last = -1
    while rows := fetch(
        connection, _ITEM, _SENDING, (stands.seq, last, limit - len(taken))
    ):
        last = rows[-1][0]
        skipped: list[Item] = []
        for ordinal, seq, *_, state, replays, generation in rows:
            if seq is not None and is_out(State(state), replays, generation):
                taken.append(seq)
            else:
                skipped.append((stands.seq, ordinal, generation, Outcome.SKIPPED))
        update(connection, skipped)
        n = len(skipped)
        count(
            connection,
            Counter(
                {(stands.seq, "sending"): -n, (stands.seq, Outcome.SKIPPED.value): n}
            ),
        )
    return taken


def _take_planned(
    connection: sqlite3.Connection,
    campaign: str,
    stands: Course,
    limit: int,
    now: datetime,
) -> list[int]:
    taken: list[int] = []
    place = stands.taken
    by = By(stands.actor, f"replayed {stands.cap} times, which is the cap")
    while rows := fetch(
        connection, _ITEM, _PLANNED, (stands.seq, place, limit - len(taken))
    ):
        place += len(rows)
        going, quarantined = _judge(connection, stands, rows)
        connection.execute(_TAKE, (numbers(brief.seq for brief in going),))
        count_moved(connection, dict.fromkeys(going, State.REPLAYING))
        set_states(connection, dict.fromkeys(quarantined, State.QUARANTINED))
        append(
            connection,
            [
                act("quarantine", b.id, by, at=now, detail=f"by campaign {campaign}")
                for b in quarantined
            ],
        )
        taken += [brief.seq for brief in going]
    connection.execute(_TAKEN, (place, stands.seq))
    return taken


def _judge(
    connection: sqlite3.Connection, stands: Course, rows: Sequence[Row]
) -> tuple[list[Brief], list[Brief]]:
    """Say what becomes of planned letters; those that go, and those past the cap."""
    going: list[Brief] = []
    quarantined: list[Brief] = []
    items: list[Item] = []
    for ordinal, *letter, replays, _ in rows:
        outcome, generation = Outcome.SKIPPED, 0
        if letter[0] is not None:
            brief = brief_of(letter)
            outcome, state = take(brief.state, replays, stands.cap)
            if outcome is Outcome.SENDING:
                going.append(brief)
                generation = replays + 1
            elif state is not brief.state:
                quarantined.append(brief)
        items.append((stands.seq, ordinal, generation, outcome.value))
    update(connection, items)
    tally: Tally = Counter((stands.seq, item[3]) for item in items)
    tally[stands.seq, Outcome.PLANNED.value] -= len(items)
    count(connection, tally)
    return going, quarantined
