"""Letters of one key in a campaign: each waits for the one before it to end."""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from deadletter.core.campaign import Outcome
from deadletter.core.seals import ItemMoves, item_changes
from deadletter.ports.letters import KeyProgress

from .audit import ADD, item_marks
from .sql import micros, numbers, stored, write

# What became of each letter in each campaign, and how many of each.

_MARK: Final = """
UPDATE campaign_items SET outcome = ?, settled_at = ?,
    confirmed_at = CASE outcome WHEN 'confirmed' THEN settled_at END
WHERE campaign = ? AND ordinal IN (SELECT value FROM json_each(?))
RETURNING letter
"""
_COUNT: Final = "INSERT INTO campaign_outcomes (campaign, outcome, n, marks, marks_key) VALUES"
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


def explain(connection: sqlite3.Connection, whys: Iterable[tuple[str, int, int]]) -> None:
    """Write down why items were refused: the text, campaign and ordinal of each."""
    connection.executemany(_EXPLAIN, [(stored(why), *item) for why, *item in whys])


def count(connection: sqlite3.Connection, moves: ItemMoves) -> None:
    """Write down which letters have another outcome in a campaign now."""
    marks = item_marks(connection, {campaign for campaign, _, _ in moves})
    rows = [
        (campaign, outcome.value, *more) for campaign, outcome, *more in item_changes(moves, marks)
    ]
    write(connection, _COUNT, rows, _COUNT_MORE)


def finish(connection: sqlite3.Connection, campaigns: Iterable[int]) -> None:
    """End running campaigns that have nothing left to wait for."""
    connection.execute(_FINISH, (numbers(campaigns),))


if TYPE_CHECKING:  # which plans letters of keys by this module
    from .campaigns import SqliteCourse

_HAS_KEYS: Final = """
SELECT EXISTS (SELECT 1 FROM campaign_items i CROSS JOIN letters l ON l.seq = i.letter
    WHERE i.campaign = ? AND i.ordinal >= ? AND l.key IS NOT NULL)
"""
_LETTERS: Final = """
SELECT i.letter, i.ordinal,
    CASE WHEN l.key IS NULL THEN NULL ELSE lag(i.letter) OVER w END AS follows,
    first_value(i.letter) OVER w AS head
FROM campaign_items i CROSS JOIN letters l ON l.seq = i.letter
WHERE i.campaign = :campaign AND i.ordinal >= :first
WINDOW w AS (PARTITION BY ifnull(:to, l.source), l.key ORDER BY i.ordinal)
ORDER BY i.ordinal
"""
_TAKE_BACK: Final = "DELETE FROM campaign_items WHERE campaign = ? AND ordinal >= ?"
_ADD: Final = "INSERT INTO campaign_items (campaign, ordinal, letter) VALUES"
_WAIT: Final = "INSERT INTO campaign_waiting (campaign, follows, letter, head, place) VALUES"
_KEYED: Final = "UPDATE campaigns SET keyed = 1, items = ?, free = ? WHERE seq = ?"
_READY: Final = """
SELECT letter FROM campaign_waiting WHERE campaign = ? AND ready = 1
ORDER BY place LIMIT ?
"""
_GONE: Final = """
DELETE FROM campaign_waiting
WHERE campaign = ? AND letter IN (SELECT value FROM json_each(?))
"""
_GROW: Final = "UPDATE campaigns SET items = items + ? WHERE seq = ?"
_FREE: Final = """
UPDATE campaign_waiting SET ready = 1
WHERE campaign = ? AND follows IN (SELECT value FROM json_each(?))
"""
_BEHIND: Final = """
WITH RECURSIVE behind (letter, place) AS (
    SELECT letter, place FROM campaign_waiting
    WHERE campaign = :campaign AND follows IN (SELECT value FROM json_each(:letters))
    UNION ALL
    SELECT w.letter, w.place FROM behind b CROSS JOIN campaign_waiting w
    ON w.campaign = :campaign AND w.follows = b.letter
)
SELECT letter FROM behind ORDER BY place
"""
_ITEMS: Final = "SELECT items FROM campaigns WHERE seq = ?"
_HOLD: Final = "INSERT INTO campaign_items (campaign, ordinal, letter, outcome, settled_at) VALUES"
_STARTED: Final = """
SELECT count(*) FROM campaign_waiting w WHERE w.campaign = :campaign AND NOT EXISTS (
    SELECT 1 FROM campaign_items i WHERE i.letter = w.head AND i.campaign = w.campaign
    AND i.outcome = 'planned')
"""
_SIZES: Final = """
SELECT (SELECT count(*) FROM campaign_waiting w
    WHERE w.campaign = i.campaign AND w.head = i.letter)
FROM campaign_items i WHERE i.campaign = ? AND i.ordinal >= ? AND i.ordinal < ?
ORDER BY i.ordinal
"""


def chain(connection: sqlite3.Connection, campaign: int, first: int, to: str | None) -> int:
    """Let items from an ordinal on wait for each other by key; how many do."""
    (has_keys,) = connection.execute(_HAS_KEYS, (campaign, first)).fetchone()
    if not has_keys:
        return 0
    values = {"campaign": campaign, "first": first, "to": to}
    rows = connection.execute(_LETTERS, values).fetchall()
    waiting = [
        (campaign, follows, letter, head, place)
        for letter, place, follows, head in rows
        if follows is not None
    ]
    if waiting:
        free = [row[0] for row in rows if row[2] is None]
        connection.execute(_TAKE_BACK, (campaign, first))
        items = [(campaign, first + n, letter) for n, letter in enumerate(free)]
        write(connection, _ADD, items)
        write(connection, _WAIT, waiting)
        end = first + len(free)
        connection.execute(_KEYED, (end, end, campaign))
        letters = [row[2] for row in waiting]
        count(connection, {(campaign, Outcome.PLANNED, Outcome.WAITING): letters})
    return len(waiting)


def freed(connection: sqlite3.Connection, stands: "SqliteCourse", limit: int) -> tuple[int, int]:
    """Make items of letters whose turn has come; the ordinals of these."""
    start = stands.items
    if not stands.keyed or limit <= 0:
        return start, start
    letters = [one for (one,) in connection.execute(_READY, (stands.seq, limit))]
    if letters:
        _leave(connection, stands.seq, letters)
        items = [(stands.seq, start + n, letter) for n, letter in enumerate(letters)]
        write(connection, _ADD, items)
        count(connection, {(stands.seq, Outcome.WAITING, Outcome.PLANNED): letters})
    return start, start + len(letters)


def free_behind(connection: sqlite3.Connection, campaign: int, letters: Sequence[int]) -> None:
    """Say that what waits behind these letters may go."""
    if letters:
        connection.execute(_FREE, (campaign, numbers(letters)))


def hold_behind(
    connection: sqlite3.Connection, campaign: int, letters: Sequence[int], now: datetime
) -> None:
    """Hold back all that waits behind these letters."""
    values = {"campaign": campaign, "letters": numbers(letters)}
    behind = [one for (one,) in connection.execute(_BEHIND, values)]
    if not behind:
        return
    (start,) = connection.execute(_ITEMS, (campaign,)).fetchone()
    _leave(connection, campaign, behind)
    held: list[tuple[Any, ...]] = [
        (campaign, start + n, letter, Outcome.HELD.value, micros(now))
        for n, letter in enumerate(behind)
    ]
    write(connection, _HOLD, held)
    count(connection, {(campaign, Outcome.WAITING, Outcome.HELD): behind})


def progress(connection: sqlite3.Connection, stands: "SqliteCourse", limit: int) -> KeyProgress:
    """How far the keys of a campaign have come."""
    (behind,) = connection.execute(_STARTED, {"campaign": stands.seq}).fetchone()
    end = min(stands.taken + limit, stands.free)
    sizes = connection.execute(_SIZES, (stands.seq, stands.taken, end))
    return KeyProgress(behind, tuple(1 + size for (size,) in sizes))


def _leave(connection: sqlite3.Connection, campaign: int, letters: Sequence[int]) -> None:
    connection.execute(_GONE, (campaign, numbers(letters)))
    connection.execute(_GROW, (len(letters), campaign))
