"""What does not add up in an office: everything is counted again and compared."""

from collections import Counter
from typing import Any, Final

from deadletter.core.ids import body_digest
from deadletter.core.letter import OPEN

from .audit import problems as audit_problems
from .letters_rows import JOINED
from .pool import Connection
from .text import legible

SLICE: Final = 2_000  # bodies at a time
_NAMED: Final = 10  # problems of one kind; more of them would say nothing new
LONG: Final = 3_600.0  # seconds that looking at everything may take

_OFFICE: Final = "SELECT kept, purged, expired FROM deadletter.office"
_LETTERS: Final = f"""
SELECT l.source, l.fingerprint, m.state, count(*) FROM {JOINED} GROUP BY 1, 2, 3
"""  # noqa: S608 -- made of constants
_BY_SOURCE: Final = "SELECT source, state, n FROM deadletter.source_states"
_BY_GROUP: Final = "SELECT fingerprint, state, n FROM deadletter.group_states"
_OPEN: Final = "SELECT fingerprint, open FROM deadletter.groups"
# Each sentence is about what its query finds.
_ODDITIES: Final = {
    "letter {0} has no contents": """
        SELECT id FROM deadletter.letters WHERE NOT EXISTS (
            SELECT 1 FROM deadletter.letter_contents WHERE letter = seq)
    """,
    "letter {0} has no state": """
        SELECT id FROM deadletter.letters WHERE NOT EXISTS (
            SELECT 1 FROM deadletter.letter_marks WHERE letter = seq)
    """,
    "letter {0} is marked with another death or group than its own": f"""
        SELECT id FROM {JOINED}
        WHERE m.dead_at <> l.dead_at OR m.fingerprint <> l.fingerprint
    """,  # noqa: S608 -- made of constants
    "contents {0} belong to no letter": """
        SELECT letter FROM deadletter.letter_contents WHERE NOT EXISTS (
            SELECT 1 FROM deadletter.letters WHERE seq = letter)
    """,
    "original {0} belongs to no letter": """
        SELECT letter FROM deadletter.letter_originals WHERE NOT EXISTS (
            SELECT 1 FROM deadletter.letters WHERE seq = letter)
    """,
    "campaign {0} says {1} of its letters are {2}, but {3} are": """
        SELECT (SELECT id FROM deadletter.campaigns WHERE seq = campaign),
               sum(told)::bigint, outcome, sum(found)::bigint FROM (
            SELECT campaign, outcome, n AS told, 0 AS found
            FROM deadletter.campaign_outcomes
            UNION ALL
            SELECT campaign, outcome, 0, count(*) FROM deadletter.campaign_items
            GROUP BY campaign, outcome
            UNION ALL
            SELECT campaign, 'planned', 0, first + cardinality(letters)
                - greatest(first, taken)
            FROM deadletter.campaign_plans JOIN deadletter.campaigns ON seq = campaign
            ) c
        GROUP BY campaign, outcome HAVING sum(told) <> sum(found)
    """,
    "campaign {0} says it has {1} letters, but it has {2}": """
        SELECT id, items, n FROM deadletter.campaigns g CROSS JOIN LATERAL (
            SELECT (SELECT count(*) FROM deadletter.campaign_items
                WHERE campaign = g.seq) + (
                SELECT coalesce(sum(until - greatest(first, g.taken)), 0)
                FROM deadletter.campaign_plans WHERE campaign = g.seq) AS n) found
        WHERE items <> n
    """,
    "campaign {0} has taken {1} letters, but number {2} is {3}": """
        SELECT id, taken, ordinal + 1, outcome
        FROM deadletter.campaign_items JOIN deadletter.campaigns ON seq = campaign
        WHERE ordinal >= taken OR (outcome = 'sending' AND ordinal < surely)
    """,
}
_BODIES: Final = """
SELECT c.letter, c.digest, c.body, l.id, o.digest, o.body
FROM deadletter.letter_contents c LEFT JOIN deadletter.letters l ON l.seq = c.letter
LEFT JOIN deadletter.letter_originals o ON o.letter = c.letter
WHERE c.letter > $1 ORDER BY c.letter LIMIT $2
"""


async def problems(connection: Connection) -> list[str]:
    """What is wrong, one sentence each, but for bodies (see `damaged`)."""
    found = await _miscounted(connection)
    for sentence, select in _ODDITIES.items():
        rows = await connection.fetch(f"{select} LIMIT {_NAMED}", timeout=LONG)
        found += [sentence.format(*legible(row)) for row in rows]
    return [*found, *(await audit_problems(connection))[:_NAMED]]


async def damaged(connection: Connection, after: int) -> tuple[int | None, list[str]]:
    """Bodies behind `after` that are not as they were kept, and where to go on."""
    rows = await connection.fetch(_BODIES, after, SLICE)
    found = [
        f"the body of letter {id_} is not the one that was kept"
        for _, digest, body, id_, died, original in rows
        if body_digest(body) != digest
        or (died is not None and body_digest(original) != died)
    ]
    return (rows[-1][0] if len(rows) == SLICE else None), found


async def _miscounted(connection: Connection) -> list[str]:
    by_source: Counter[Any] = Counter()
    by_group: Counter[Any] = Counter()
    open_: Counter[Any] = Counter()
    for row in await connection.fetch(_LETTERS, timeout=LONG):
        source, fingerprint, state, n = row
        by_source[source, state] += n
        by_group[fingerprint, state] += n
        open_[fingerprint,] += n if state in OPEN else 0
    kept, purged, expired = await connection.fetchrow(_OFFICE)
    present, expected = by_source.total(), kept - purged - expired
    found: list[str] = []
    if present != expected:
        found.append(
            f"{kept} letters were kept, {purged} purged and {expired} expired,"
            f" but {present} are there instead of {expected}"
        )
    for name, select, real in (
        ("source {0} ({1})", _BY_SOURCE, by_source),
        ("group {0} ({1})", _BY_GROUP, by_group),
        ("group {0} (open)", _OPEN, open_),
    ):
        found += await _differences(connection, name, select, real)
    return found


async def _differences(
    connection: Connection, name: str, select: str, real: Counter[Any]
) -> list[str]:
    told: Counter[Any] = Counter()
    for *key, n in await connection.fetch(select):
        told[tuple(key)] += n
    different = [key for key in told | real if told[key] != real[key]]
    return [
        f"{name.format(*legible(key))} should have {told[key]} letters,"
        f" but there are {real[key]}"
        for key in sorted(different, key=repr)[:_NAMED]
    ]
