"""
Which letters a campaign has yet to take, in the order they go.

A plan is frozen, and nothing happens to its letters until they are taken. So many of
them share a row, which goes when the last of them is taken.
"""

from collections.abc import Sequence
from typing import Final

from deadletter.core.escaping import shown, stored

from .pool import Connection

_TOGETHER: Final = 200  # letters in one row: as many as need no second place

_OLDEST_FIRST: Final = """
ORDER BY coalesce(c.sent_at, l.first_failed_at), coalesce(c.sent_place, ''),
    l.message_id COLLATE "C", l.seq
"""
_CHOSEN: Final = """
deadletter.letters l JOIN deadletter.letter_contents c ON c.letter = l.seq
"""
_ORDERED: Final = f"""
SELECT l.id FROM {_CHOSEN} WHERE l.id = ANY($1::text[]) {_OLDEST_FIRST}
"""  # noqa: S608 -- made of constants
_ADD: Final = f"""
WITH chosen AS MATERIALIZED (
    SELECT array_agg(l.seq {_OLDEST_FIRST}) AS letters
    FROM {_CHOSEN} WHERE l.id = ANY($3::text[]) {{those}}
), added AS (
    INSERT INTO deadletter.campaign_plans (campaign, first, until, letters, reach)
    SELECT $1, $2::int + place, $2::int + place + cardinality(part), part, reach
    FROM chosen
    CROSS JOIN generate_series(0, cardinality(letters) - 1, {_TOGETHER}) AS place
    CROSS JOIN LATERAL (
        SELECT array_agg(n), int8range(min(n), max(n), '[]')
        FROM unnest(letters[place + 1 : place + {_TOGETHER}]) AS n) AS s (part, reach)
)
SELECT coalesce(letters, ARRAY[]::bigint[]) FROM chosen
"""  # noqa: S608 -- made of constants
_START: Final = _ADD.format(those="")
# Each letter once, also when it is planned again.
_GO_ON: Final = _ADD.format(
    those="""
    AND NOT EXISTS (
        SELECT 1 FROM deadletter.campaign_items i
        WHERE i.letter = l.seq AND i.campaign = $1)
    AND NOT EXISTS (
        SELECT 1 FROM deadletter.campaign_plans p, unnest(p.letters) AS planned
        WHERE p.campaign = $1 AND planned = l.seq)"""
)
_NOT_YET: Final = f"""
SELECT l.id FROM {_CHOSEN} WHERE l.id = ANY($1::text[])
AND NOT EXISTS (SELECT 1 FROM deadletter.campaign_items i
    WHERE i.letter = l.seq AND i.campaign = $2)
AND NOT EXISTS (SELECT 1 FROM deadletter.campaign_waiting w
    WHERE w.letter = l.seq AND w.campaign = $2)
{_OLDEST_FIRST}
"""  # noqa: S608 -- made of constants
_SOME: Final = """
SELECT letters[greatest($2 - first, 0) + 1 : least($3, until) - first]
FROM deadletter.campaign_plans
WHERE campaign = $1 AND until > $2 AND first < $3 ORDER BY until
"""


async def add(
    connection: Connection, campaign: int, behind: int, ids: Sequence[str]
) -> list[int]:
    """Plan these behind `behind` that are planned or taken; the letters added."""
    adding = _GO_ON if behind else _START
    return [*await connection.fetchval(adding, campaign, behind, ids)]


async def not_yet(
    connection: Connection, campaign: int, ids: Sequence[str]
) -> list[str]:
    """Those of the letters that are not in a campaign yet, oldest sent first."""
    return [id_ for (id_,) in await connection.fetch(_NOT_YET, ids, campaign)]


async def sent_order(connection: Connection, letters: Sequence[str]) -> list[str]:
    """The ids of letters that exist, oldest sent first."""
    wanted = [stored(id_) for id_ in letters]
    return [shown(id_) for (id_,) in await connection.fetch(_ORDERED, wanted)]


async def planned(
    connection: Connection, campaign: int, start: int, end: int
) -> dict[int, int]:
    """Numbers of letters that are planned, by their ordinals from `start` to `end`."""
    rows = await connection.fetch(_SOME, campaign, start, end)
    return dict(enumerate((letter for (some,) in rows for letter in some), start))
