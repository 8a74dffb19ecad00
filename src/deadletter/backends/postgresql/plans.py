"""
Which letters a campaign has yet to take, in the order they go.

A plan is frozen, and nothing happens to its letters until they are taken. So many of
them share a row, which goes when the last of them is taken.
"""

from collections.abc import Sequence
from typing import Final

from .pool import Connection

_TOGETHER: Final = 200  # letters in one row: as many as need no second place

# In the order given.
_ADD: Final = f"""
WITH chosen AS MATERIALIZED (
    SELECT array_agg(l.seq ORDER BY w.place) AS letters
    FROM unnest($3::text[]) WITH ORDINALITY AS w (id, place)
    JOIN deadletter.letters l ON l.id = w.id {{those}}
), added AS (
    INSERT INTO deadletter.campaign_plans (campaign, first, until, letters, reach)
    SELECT $1, $2::int + place, $2::int + place + cardinality(part), part, reach
    FROM chosen
    CROSS JOIN generate_series(0, cardinality(letters) - 1, {_TOGETHER}) AS place
    CROSS JOIN LATERAL (
        SELECT array_agg(n), int8range(min(n), max(n), '[]')
        FROM unnest(letters[place + 1 : place + {_TOGETHER}]) AS n) AS s (part, reach)
)
SELECT coalesce(cardinality(letters), 0) FROM chosen
"""  # noqa: S608 -- made of constants
_START: Final = _ADD.format(those="")
# Each letter once, also when it is planned again.
_GO_ON: Final = _ADD.format(
    those="""
    WHERE NOT EXISTS (
        SELECT 1 FROM deadletter.campaign_items i
        WHERE i.letter = l.seq AND i.campaign = $1)
    AND NOT EXISTS (
        SELECT 1 FROM deadletter.campaign_plans p, unnest(p.letters) AS planned
        WHERE p.campaign = $1 AND planned = l.seq)"""
)
_SOME: Final = """
SELECT letters[greatest($2 - first, 0) + 1 : least($3, until) - first]
FROM deadletter.campaign_plans
WHERE campaign = $1 AND until > $2 AND first < $3 ORDER BY until
"""


async def add(
    connection: Connection, campaign: int, behind: int, ids: Sequence[str]
) -> int:
    """Plan these behind so many that are planned or taken; how many were added."""
    adding = _GO_ON if behind else _START
    return int(await connection.fetchval(adding, campaign, behind, ids))


async def planned(
    connection: Connection, campaign: int, start: int, end: int
) -> dict[int, int]:
    """Numbers of letters that are planned, by their ordinals from `start` to `end`."""
    rows = await connection.fetch(_SOME, campaign, start, end)
    return dict(enumerate((letter for (some,) in rows for letter in some), start))
