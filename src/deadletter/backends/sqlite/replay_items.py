"""What became of each letter in each campaign, and how many of each."""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeAlias

from deadletter.core.campaign import Outcome

from .rows import micros
from .sql import numbers, write

Tally: TypeAlias = Counter[tuple[int, Outcome]]
"""How many items more or less there are, by campaign and outcome."""

_MARK: Final = """
UPDATE campaign_items SET outcome = ?, settled_at = ?,
    confirmed_at = CASE outcome WHEN 'confirmed' THEN settled_at END
WHERE campaign = ? AND ordinal IN (SELECT value FROM json_each(?))
"""
_COUNT: Final = "INSERT INTO campaign_outcomes (campaign, outcome, n) VALUES"
_COUNT_MORE: Final = "ON CONFLICT (campaign, outcome) DO UPDATE SET n = n + excluded.n"
_FINISH: Final = """
UPDATE campaigns SET state = 'done'
WHERE seq IN (SELECT value FROM json_each(?)) AND state = 'running' AND NOT EXISTS (
    SELECT 1 FROM campaign_outcomes WHERE campaign = campaigns.seq AND n > 0
    AND outcome IN ('planned', 'sending', 'sent'))
"""


def mark(
    connection: sqlite3.Connection,
    campaign: int,
    ordinals: Iterable[int],
    outcome: Outcome,
    now: datetime,
) -> None:
    """Write down what became of items."""
    values = (outcome.value, micros(now), campaign, numbers(ordinals))
    connection.execute(_MARK, values)


def count(connection: sqlite3.Connection, tally: Tally) -> None:
    """Write down how many items more or less there are."""
    rows = [
        (campaign, outcome.value, n) for (campaign, outcome), n in tally.items() if n
    ]
    write(connection, _COUNT, rows, _COUNT_MORE)


def finish(connection: sqlite3.Connection, campaigns: Iterable[int]) -> None:
    """End running campaigns that have nothing left to wait for."""
    connection.execute(_FINISH, (numbers(campaigns),))
