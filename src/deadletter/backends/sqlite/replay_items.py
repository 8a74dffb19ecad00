"""What became of each letter in each campaign, and how many of each."""

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from deadletter.core.campaign import Outcome
from deadletter.core.marks import ItemMoves, item_changes

from .marks import ADD, item_marks
from .rows import micros
from .sql import numbers, stored, write

_MARK: Final = """
UPDATE campaign_items SET outcome = ?, settled_at = ?,
    confirmed_at = CASE outcome WHEN 'confirmed' THEN settled_at END
WHERE campaign = ? AND ordinal IN (SELECT value FROM json_each(?))
RETURNING letter
"""
_COUNT: Final = (
    "INSERT INTO campaign_outcomes (campaign, outcome, n, marks, marks_key) VALUES"
)
_COUNT_MORE: Final = f"""
ON CONFLICT (campaign, outcome) DO UPDATE
SET n = n + excluded.n, marks = marks + excluded.marks {ADD}
"""
_EXPLAIN: Final = """
UPDATE campaign_items SET why = ? WHERE campaign = ? AND ordinal = ?
"""
_FINISH: Final = """
UPDATE campaigns SET state = 'done'
WHERE seq IN (SELECT value FROM json_each(?)) AND state = 'running' AND NOT EXISTS (
    SELECT 1 FROM campaign_outcomes WHERE campaign = campaigns.seq AND n > 0
    AND outcome IN ('planned', 'waiting', 'sending', 'sent'))
"""


def mark(
    connection: sqlite3.Connection,
    campaign: int,
    ordinals: Iterable[int],
    outcome: Outcome,
    now: datetime,
) -> list[int]:
    """Write down what became of items; the letters of these."""
    values = (outcome.value, micros(now), campaign, numbers(ordinals))
    return [letter for (letter,) in connection.execute(_MARK, values)]


def explain(
    connection: sqlite3.Connection, whys: Iterable[tuple[str, int, int]]
) -> None:
    """Write down why items were refused: the text, campaign and ordinal of each."""
    connection.executemany(_EXPLAIN, [(stored(why), *item) for why, *item in whys])


def count(connection: sqlite3.Connection, moves: ItemMoves) -> None:
    """Write down which letters have another outcome in a campaign now."""
    marks = item_marks(connection, {campaign for campaign, _, _ in moves})
    rows = [
        (campaign, outcome.value, *more)
        for campaign, outcome, *more in item_changes(moves, marks)
    ]
    write(connection, _COUNT, rows, _COUNT_MORE)


def finish(connection: sqlite3.Connection, campaigns: Iterable[int]) -> None:
    """End running campaigns that have nothing left to wait for."""
    connection.execute(_FINISH, (numbers(campaigns),))
