"""What became of each letter in each campaign, and how many of each."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from .sql import numbers, packed, write

Item: TypeAlias = tuple[int, int, int, str]
"""Campaign and ordinal, and what is written there: generation and outcome."""

Tally: TypeAlias = Counter[tuple[int, str]]
"""How many items more or less there are, by campaign and outcome."""

_UPDATE: Final = """
UPDATE campaign_items SET
    generation = json_extract(value, '$[2]'), outcome = json_extract(value, '$[3]')
FROM json_each(?)
WHERE campaign = json_extract(value, '$[0]') AND ordinal = json_extract(value, '$[1]')
"""
_COUNT: Final = "INSERT INTO campaign_outcomes (campaign, outcome, n) VALUES"
_COUNT_MORE: Final = "ON CONFLICT (campaign, outcome) DO UPDATE SET n = n + excluded.n"
_FINISH: Final = """
UPDATE campaigns SET state = 'done'
WHERE seq IN (SELECT value FROM json_each(?)) AND state = 'running' AND NOT EXISTS (
    SELECT 1 FROM campaign_outcomes WHERE campaign = campaigns.seq AND n > 0
    AND outcome IN ('planned', 'sending', 'sent'))
"""


def update(connection: sqlite3.Connection, items: Sequence[Item]) -> None:
    """Write down what became of items."""
    if items:
        connection.execute(_UPDATE, (packed(items),))


def count(connection: sqlite3.Connection, tally: Tally) -> None:
    """Write down how many items more or less there are."""
    rows = [(campaign, outcome, n) for (campaign, outcome), n in tally.items() if n]
    write(connection, _COUNT, rows, _COUNT_MORE)


def finish(connection: sqlite3.Connection, campaigns: Iterable[int]) -> None:
    """End running campaigns that have nothing left to wait for."""
    connection.execute(_FINISH, (numbers(campaigns),))
