"""What campaigns did with a letter, to be read in its story."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.ports.letters import ReplayItems

from .campaigns import existing
from .sql import Row, fetch, ids, when

_COLUMNS: Final = """
id, campaign_id, actor, reason, mailbox, generation, outcome, taken_at, sent_at,
settled_at, confirmed_at, why
"""
_ITEMS: Final = """
SELECT l.id, g.id AS campaign_id, g.actor, g.reason, g.mailbox, i.generation,
       i.outcome, i.taken_at, i.sent_at, i.settled_at, i.confirmed_at, i.why,
       j.key, g.seq
FROM json_each(?1) j CROSS JOIN letters l ON l.id = j.value
CROSS JOIN campaign_items i ON i.letter = l.seq
CROSS JOIN campaigns g ON g.seq = i.campaign
UNION ALL
SELECT l.id, g.id, g.actor, g.reason, g.mailbox, 0, 'waiting', NULL, NULL, NULL, NULL,
       '', j.key, g.seq
FROM json_each(?1) j CROSS JOIN letters l ON l.id = j.value
CROSS JOIN campaign_waiting w ON w.letter = l.seq
CROSS JOIN campaigns g ON g.seq = w.campaign
ORDER BY 13, 14
"""
_OF_CAMPAIGN: Final = """
SELECT l.id, g.id AS campaign_id, g.actor, g.reason, g.mailbox, i.generation,
       i.outcome, i.taken_at, i.sent_at, i.settled_at, i.confirmed_at, i.why
FROM campaigns g CROSS JOIN campaign_items i ON i.campaign = g.seq
CROSS JOIN letters l ON l.seq = i.letter
WHERE g.seq = ? AND i.ordinal >= ? AND i.ordinal < ?
ORDER BY i.ordinal
"""
_WAITING: Final = "SELECT count(*) FROM campaign_waiting WHERE campaign = ?"
_STILL_WAITING: Final = """
SELECT l.id, g.id AS campaign_id, g.actor, g.reason, g.mailbox, 0 AS generation,
       'waiting' AS outcome, NULL AS taken_at, NULL AS sent_at, NULL AS settled_at,
       NULL AS confirmed_at, '' AS why
FROM campaigns g CROSS JOIN campaign_waiting w ON w.campaign = g.seq
CROSS JOIN letters l ON l.seq = w.letter
WHERE g.seq = ? ORDER BY w.place LIMIT ? OFFSET ?
"""

_WAITING_SINCE: Final = """
SELECT l.source, min(i.taken_at) AS taken_at
FROM letters l INDEXED BY letters_by_state
CROSS JOIN campaign_items i ON i.letter = l.seq AND i.generation = l.replays
WHERE l.state = 'replaying' GROUP BY l.source
"""


def waiting_since(connection: sqlite3.Connection) -> dict[str, datetime]:
    """When the copy was taken that each source has waited for longest."""
    return {
        source: when(taken_at)
        for source, taken_at in fetch(connection, "source, taken_at", _WAITING_SINCE)
    }


def items(connection: sqlite3.Connection, letters: Sequence[str]) -> list[ReplayItem]:
    """Every part these letters had in campaigns, each letter's first to last."""
    return [_item(row) for row in fetch(connection, _COLUMNS, _ITEMS, (ids(letters),))]


def of_campaign(
    connection: sqlite3.Connection, campaign: str, after: int, limit: int
) -> ReplayItems:
    """What became of a campaign's letters, in the order they go."""
    stands = existing(connection, campaign)
    end = after + limit
    rows = fetch(connection, _COLUMNS, _OF_CAMPAIGN, (stands.seq, after, end))
    size = stands.items
    if stands.keyed:
        # Those that wait stand behind all that have items, in the order they go.
        (waiting,) = connection.execute(_WAITING, (stands.seq,)).fetchone()
        first = max(0, after - size)
        some = (stands.seq, max(0, end - max(after, size)), first)
        rows += fetch(connection, _COLUMNS, _STILL_WAITING, some)
        size += waiting
    return ReplayItems(tuple(map(_item, rows)), end if end < size else None)


def _item(row: Row) -> ReplayItem:
    id_, campaign, actor, reason, to, generation, outcome, *times, why = row
    taken_at, sent_at, settled_at, confirmed_at = map(_time, times)
    return ReplayItem(
        letter_id=id_,
        campaign=campaign,
        actor=actor,
        reason=reason,
        to=to,
        generation=generation,
        outcome=Outcome(outcome),
        taken_at=taken_at,
        sent_at=sent_at,
        settled_at=settled_at,
        confirmed_at=confirmed_at,
        why=why,
    )


def _time(stored: int | None) -> datetime | None:
    return None if stored is None else when(stored)
