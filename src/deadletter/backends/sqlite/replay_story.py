"""What campaigns did with a letter, to be read in its story."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.ports.letters import ReplayItems

from .campaigns import existing
from .rows import when
from .sql import Row, fetch, ids

_COLUMNS: Final = """
id, campaign_id, actor, reason, mailbox, generation, outcome, taken_at, sent_at,
settled_at, confirmed_at
"""
_ITEMS: Final = """
SELECT l.id, g.id AS campaign_id, g.actor, g.reason, g.mailbox, i.generation,
       i.outcome, i.taken_at, i.sent_at, i.settled_at, i.confirmed_at
FROM json_each(?) j CROSS JOIN letters l ON l.id = j.value
CROSS JOIN campaign_items i ON i.letter = l.seq
CROSS JOIN campaigns g ON g.seq = i.campaign
ORDER BY j.key, g.seq
"""
_OF_CAMPAIGN: Final = """
SELECT l.id, g.id AS campaign_id, g.actor, g.reason, g.mailbox, i.generation,
       i.outcome, i.taken_at, i.sent_at, i.settled_at, i.confirmed_at
FROM campaigns g CROSS JOIN campaign_items i ON i.campaign = g.seq
CROSS JOIN letters l ON l.seq = i.letter
WHERE g.seq = ? AND i.ordinal >= ? AND i.ordinal < ?
ORDER BY i.ordinal
"""


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
    return ReplayItems(tuple(map(_item, rows)), end if end < stands.items else None)


def _item(row: Row) -> ReplayItem:
    id_, campaign, actor, reason, to, generation, outcome, *times = row
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
    )


def _time(stored: int | None) -> datetime | None:
    return None if stored is None else when(stored)
