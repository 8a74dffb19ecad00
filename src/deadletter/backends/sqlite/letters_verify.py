"""What does not add up in an office: everything is counted again and compared."""

import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Final

from deadletter.core.ids import body_digest

from .audit import problems as audit_problems
from .sql import shown

SLICE: Final = 2_000  # bodies at a time
_NAMED: Final = 10  # problems of one kind; more of them would say nothing new

_CONSERVED: Final = """
SELECT kept, purged, expired, (SELECT count(*) FROM letters) FROM office
"""
# Each of these finds a name and why: two counts, what is written and what is there.
_COUNTS: Final = {
    "group {0} should have {1} letters that are {3}, but there are {2}": """
        SELECT fingerprint, sum(told), sum(found), state FROM (
            SELECT fingerprint, state, n AS told, 0 AS found FROM group_states
            UNION ALL
            SELECT fingerprint, state, 0, count(*) FROM letters
            GROUP BY fingerprint, state)
        GROUP BY fingerprint, state HAVING sum(told) <> sum(found)
    """,
    "source {0} should have {1} letters that are {3}, but there are {2}": """
        SELECT source, sum(told), sum(found), state FROM (
            SELECT source, state, n AS told, 0 AS found FROM source_states
            UNION ALL
            SELECT source, state, 0, count(*) FROM letters GROUP BY source, state)
        GROUP BY source, state HAVING sum(told) <> sum(found)
    """,
    "group {0} should have {1} open letters, but there are {2}": """
        SELECT fingerprint, sum(told), sum(found) FROM (
            SELECT fingerprint, open AS told, 0 AS found FROM groups
            UNION ALL
            SELECT fingerprint, 0, count(*) FROM letters
            WHERE state IN ('pending', 'reviewed', 'quarantined') GROUP BY fingerprint)
        GROUP BY fingerprint HAVING sum(told) <> sum(found)
    """,
    "letter {0} has no contents": """
        SELECT id FROM letters
        WHERE NOT EXISTS (SELECT 1 FROM letter_contents WHERE letter = seq)
    """,
    "contents {0} belong to no letter": """
        SELECT letter FROM letter_contents
        WHERE NOT EXISTS (SELECT 1 FROM letters WHERE seq = letter)
    """,
    "campaign {0} should have {1} letters {3}, but there are {2}": """
        SELECT (SELECT id FROM campaigns WHERE seq = campaign),
               sum(told), sum(found), outcome FROM (
            SELECT campaign, outcome, n AS told, 0 AS found FROM campaign_outcomes
            UNION ALL
            SELECT campaign, outcome, 0, count(*) FROM campaign_items
            GROUP BY campaign, outcome)
        GROUP BY campaign, outcome HAVING sum(told) <> sum(found)
    """,
    "campaign {0} should have {1} letters in all, but there are {2}": """
        SELECT id, items, (SELECT count(*) FROM campaign_items WHERE campaign = seq)
        FROM campaigns
        WHERE items <> (SELECT count(*) FROM campaign_items WHERE campaign = seq)
    """,
    "campaign {0} has taken {1} letters, but letter {2} of it is {3}": """
        SELECT id, taken, ordinal + 1, outcome
        FROM campaign_items JOIN campaigns ON seq = campaign
        WHERE (outcome = 'planned') <> (ordinal >= taken)
    """,
}
_BODIES: Final = """
SELECT c.letter, c.digest, c.body, l.id
FROM letter_contents c LEFT JOIN letters l ON l.seq = c.letter
WHERE c.letter > ? ORDER BY c.letter LIMIT ?
"""


def problems(connection: sqlite3.Connection) -> list[str]:
    """What is wrong, one sentence each, bodies apart (see `damaged`)."""
    found = list(_not_conserved(connection))
    for sentence, select in _COUNTS.items():
        rows = connection.execute(f"{select} LIMIT ?", (_NAMED,))
        found += [sentence.format(*map(shown, row)) for row in rows]
    return [*found, *islice(audit_problems(connection), _NAMED)]


def damaged(connection: sqlite3.Connection, after: int) -> tuple[int | None, list[str]]:
    """Bodies behind `after` that are not as they were kept; where to go on."""
    rows = connection.execute(_BODIES, (after, SLICE)).fetchall()
    found = [
        f"the body of letter {id_} is not the one that was kept"
        for _, digest, body, id_ in rows
        if body_digest(body) != digest
    ]
    return (rows[-1][0] if len(rows) == SLICE else None), found


def _not_conserved(connection: sqlite3.Connection) -> Iterator[str]:
    kept, purged, expired, present = connection.execute(_CONSERVED).fetchone()
    if kept != present + purged + expired:
        yield (
            f"{kept} letters were kept, {purged} purged and {expired} expired,"
            f" but {present} are there instead of {kept - purged - expired}"
        )
