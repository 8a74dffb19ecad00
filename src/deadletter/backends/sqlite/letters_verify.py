"""What does not add up in an office: everything is counted again and compared."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from deadletter.core.ids import body_digest
from deadletter.core.letter import OPEN

from .audit import problems as audit_problems
from .sql import shown

SLICE: Final = 2_000  # bodies at a time
_NAMED: Final = 10  # problems of one kind; more of them would say nothing new

_OFFICE: Final = "SELECT kept, purged, expired FROM office"
# Not indexed, because reading all letters in their own order is the fastest way.
_LETTERS: Final = """
SELECT source, fingerprint, state, count(*) FROM letters NOT INDEXED GROUP BY 1, 2, 3
"""
_BY_SOURCE: Final = "SELECT source, state, n FROM source_states"
_BY_GROUP: Final = "SELECT fingerprint, state, n FROM group_states"
_OPEN: Final = "SELECT fingerprint, open FROM groups"
# Each sentence is about what its query finds.
_ODDITIES: Final = {
    "letter {0} has no contents": """
        SELECT id FROM letters NOT INDEXED
        WHERE NOT EXISTS (SELECT 1 FROM letter_contents WHERE letter = seq)
    """,
    "contents {0} belong to no letter": """
        SELECT letter FROM letter_contents
        WHERE NOT EXISTS (SELECT 1 FROM letters WHERE seq = letter)
    """,
    "original {0} belongs to no letter": """
        SELECT letter FROM letter_originals
        WHERE NOT EXISTS (SELECT 1 FROM letters WHERE seq = letter)
    """,
    "campaign {0} says {1} of its letters are {2}, but {3} are": """
        SELECT (SELECT id FROM campaigns WHERE seq = campaign),
               sum(told), outcome, sum(found) FROM (
            SELECT campaign, outcome, n AS told, 0 AS found FROM campaign_outcomes
            UNION ALL
            SELECT campaign, outcome, 0, count(*) FROM campaign_items
            GROUP BY campaign, outcome)
        GROUP BY campaign, outcome HAVING sum(told) <> sum(found)
    """,
    "campaign {0} says it has {1} letters, but it has {2}": """
        SELECT id, items, count(ordinal)
        FROM campaigns LEFT JOIN campaign_items ON campaign = seq
        GROUP BY seq HAVING items <> count(ordinal)
    """,
    "campaign {0} has taken {1} letters, but number {2} is {3}": """
        SELECT id, taken, ordinal + 1, outcome
        FROM campaign_items JOIN campaigns ON seq = campaign
        WHERE (outcome = 'planned') <> (ordinal >= taken)
    """,
}
_BODIES: Final = """
SELECT c.letter, c.digest, c.body, l.id, o.digest, o.body
FROM letter_contents c LEFT JOIN letters l ON l.seq = c.letter
LEFT JOIN letter_originals o ON o.letter = c.letter
WHERE c.letter > ? ORDER BY c.letter LIMIT ?
"""


def problems(connection: sqlite3.Connection) -> list[str]:
    """What is wrong, one sentence each, but for bodies (see `damaged`)."""
    found = list(_miscounted(connection))
    for sentence, select in _ODDITIES.items():
        rows = connection.execute(f"{select} LIMIT ?", (_NAMED,))
        found += [sentence.format(*map(shown, row)) for row in rows]
    return [*found, *islice(audit_problems(connection), _NAMED)]


def damaged(connection: sqlite3.Connection, after: int) -> tuple[int | None, list[str]]:
    """Bodies behind `after` that are not as they were kept, and where to go on."""
    rows = connection.execute(_BODIES, (after, SLICE)).fetchall()
    found = [
        f"the body of letter {id_} is not the one that was kept"
        for _, digest, body, id_, died, original in rows
        if body_digest(body) != digest
        or (died is not None and body_digest(original) != died)
    ]
    return (rows[-1][0] if len(rows) == SLICE else None), found


def _miscounted(connection: sqlite3.Connection) -> Iterator[str]:
    by_source: Counter[Any] = Counter()
    by_group: Counter[Any] = Counter()
    open_: Counter[Any] = Counter()
    for source, fingerprint, state, n in connection.execute(_LETTERS):
        by_source[source, state] += n
        by_group[fingerprint, state] += n
        open_[fingerprint] += n if state in OPEN else 0
    kept, purged, expired = connection.execute(_OFFICE).fetchone()
    present, expected = by_source.total(), kept - purged - expired
    if present != expected:
        yield (
            f"{kept} letters were kept, {purged} purged and {expired} expired,"
            f" but {present} are there instead of {expected}"
        )
    yield from _differences(connection, "source {0} ({1})", _BY_SOURCE, by_source)
    yield from _differences(connection, "group {0} ({1})", _BY_GROUP, by_group)
    open_ = Counter({(fingerprint,): n for fingerprint, n in open_.items()})
    yield from _differences(connection, "group {0} (open)", _OPEN, open_)


def _differences(
    connection: sqlite3.Connection, name: str, select: str, real: Counter[Any]
) -> Iterator[str]:
    told: Counter[Any] = Counter()
    for *key, n in connection.execute(select):
        told[tuple(key)] += n
    different = [key for key in told | real if told[key] != real[key]]
    for key in sorted(different, key=repr)[:_NAMED]:
        what = name.format(*map(shown, key))
        yield f"{what} should have {told[key]} letters, but there are {real[key]}"
