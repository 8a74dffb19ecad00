"""Letters of one key in a campaign: each waits for the one before it to end."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from deadletter.core.campaign import Outcome
from deadletter.core.errors import NotFound
from deadletter.core.text import shown, stored
from deadletter.ports.letters import KeyProgress

from .database import Connection
from .replays import count

# Which letters a campaign has yet to take, in the order they go.
#
# A plan is frozen, and nothing happens to its letters until they are taken. So many of
# them share a row, which goes when the last of them is taken.

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


async def add(connection: Connection, campaign: int, behind: int, ids: Sequence[str]) -> list[int]:
    """Plan these behind `behind` that are planned or taken; the letters added."""
    adding = _GO_ON if behind else _START
    return [*await connection.fetchval(adding, campaign, behind, ids)]


async def not_yet(connection: Connection, campaign: int, ids: Sequence[str]) -> list[str]:
    """Those of the letters that are not in a campaign yet, oldest sent first."""
    return [id_ for (id_,) in await connection.fetch(_NOT_YET, ids, campaign)]


async def sent_order(connection: Connection, letters: Sequence[str]) -> list[str]:
    """The ids of letters that exist, oldest sent first."""
    wanted = [stored(id_) for id_ in letters]
    return [shown(id_) for (id_,) in await connection.fetch(_ORDERED, wanted)]


async def planned(connection: Connection, campaign: int, start: int, end: int) -> dict[int, int]:
    """Numbers of letters that are planned, by their ordinals from `start` to `end`."""
    rows = await connection.fetch(_SOME, campaign, start, end)
    return dict(enumerate((letter for (some,) in rows for letter in some), start))


if TYPE_CHECKING:  # which plans letters of keys by this module
    from .campaigns import PostgresqlCourse

# Of letters in the order they go: which one each follows, and the first of its key.
_CHAINS: Final = """
SELECT letter, CASE WHEN key IS NOT NULL THEN lag(letter) OVER w END,
    first_value(letter) OVER w
FROM (SELECT l.seq AS letter, l.source, l.key, w.place
    FROM unnest($1::text[]) WITH ORDINALITY AS w (id, place)
    JOIN deadletter.letters l ON l.id = w.id) AS chosen
WINDOW w AS (PARTITION BY coalesce($2::text, source), key ORDER BY place)
ORDER BY place
"""
_HAS_KEYS: Final = """
SELECT EXISTS (
    SELECT 1 FROM deadletter.letters WHERE id = ANY($1::text[]) AND key IS NOT NULL)
"""
_WAIT: Final = """
INSERT INTO deadletter.campaign_waiting (campaign, follows, letter, head, place)
SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::int[])
"""
_KEYED: Final = "UPDATE deadletter.campaigns SET keyed = true WHERE seq = $1"
_READY: Final = """
WITH freed AS (
    DELETE FROM deadletter.campaign_waiting WHERE campaign = $1 AND follows = ANY(ARRAY(
        SELECT follows FROM deadletter.campaign_waiting
        WHERE campaign = $1 AND ready ORDER BY place LIMIT $2 FOR UPDATE))
    RETURNING letter, place
)
SELECT letter FROM freed ORDER BY place
"""
_GROW: Final = """
UPDATE deadletter.campaigns SET items = items + $2 WHERE seq = $1 RETURNING items
"""
_FREE: Final = """
UPDATE deadletter.campaign_waiting SET ready = true
WHERE campaign = $1 AND follows = ANY($2)
"""
_BEHIND: Final = """
WITH RECURSIVE behind (letter, place) AS (
    SELECT letter, place FROM deadletter.campaign_waiting
    WHERE campaign = $1 AND follows = ANY($2)
    UNION ALL
    SELECT w.letter, w.place FROM behind b JOIN deadletter.campaign_waiting w
    ON w.campaign = $1 AND w.follows = b.letter
), gone AS (
    DELETE FROM deadletter.campaign_waiting
    WHERE campaign = $1 AND letter = ANY(ARRAY(SELECT letter FROM behind))
    RETURNING letter, place
)
SELECT letter FROM gone ORDER BY place
"""
_HOLD: Final = """
INSERT INTO deadletter.campaign_items (campaign, outcome, settled_at, ordinal, letter)
SELECT $1, $2, $3, * FROM unnest($4::int[], $5::bigint[])
"""
_PLACE: Final = "SELECT seq, taken, free FROM deadletter.campaigns WHERE id = $1"
_STARTED: Final = """
SELECT count(*) FROM deadletter.campaign_waiting w WHERE campaign = $1
AND EXISTS (SELECT 1 FROM deadletter.campaign_items i
    WHERE i.letter = w.head AND i.campaign = w.campaign)
"""
_SIZES: Final = """
SELECT (SELECT count(*) FROM deadletter.campaign_waiting
    WHERE campaign = $1 AND head = n.letter)
FROM unnest($2::bigint[]) WITH ORDINALITY AS n (letter, place) ORDER BY place
"""


async def has_keys(connection: Connection, ids: Sequence[str]) -> bool:
    """Whether any of these letters has a key."""
    return bool(await connection.fetchval(_HAS_KEYS, ids))


async def chain(
    connection: Connection, campaign: int, ids: Sequence[str], to: str | None
) -> list[str]:
    """
    Let letters, given in the order they go, wait for each other by key.

    Returns the ids of those that need not wait.
    """
    rows = await connection.fetch(_CHAINS, ids, to)
    waiting = [
        (follows, letter, head, place)
        for place, (letter, follows, head) in enumerate(rows)
        if follows is not None
    ]
    if waiting:
        await connection.execute(_WAIT, campaign, *zip(*waiting, strict=True))
        await connection.execute(_KEYED, campaign)
        letters = [letter for _, letter, _, _ in waiting]
        await count(connection, {(campaign, None, Outcome.WAITING): letters})
    found = zip(ids, rows, strict=True)
    return [id_ for id_, (_, follows, _) in found if follows is None]


async def freed(connection: Connection, stands: "PostgresqlCourse", limit: int) -> dict[int, int]:
    """Letters whose turn has come, by ordinals of their own."""
    if not stands.keyed or limit <= 0:
        return {}
    rows = await connection.fetch(_READY, stands.seq, limit)
    if not rows:
        return {}
    n = len(rows)
    start = await connection.fetchval(_GROW, stands.seq, n) - n
    letters = [letter for (letter,) in rows]
    await count(connection, {(stands.seq, Outcome.WAITING, Outcome.PLANNED): letters})
    return dict(enumerate(letters, start))


async def free_behind(connection: Connection, campaign: int, letters: Sequence[int]) -> None:
    """Say that what waits behind these letters may go."""
    if letters:
        await connection.execute(_FREE, campaign, letters)


async def hold_behind(
    connection: Connection, campaign: int, letters: Sequence[int], now: datetime
) -> None:
    """Hold back all that waits behind these letters."""
    rows = await connection.fetch(_BEHIND, campaign, letters) if letters else []
    if not rows:
        return
    n = len(rows)
    start = await connection.fetchval(_GROW, campaign, n) - n
    behind = [letter for (letter,) in rows]
    ordinals = list(range(start, start + n))
    await connection.execute(_HOLD, campaign, Outcome.HELD, now, ordinals, behind)
    await count(connection, {(campaign, Outcome.WAITING, Outcome.HELD): behind})


async def progress(connection: Connection, campaign: str, limit: int) -> KeyProgress:
    """How far the keys of a campaign have come."""
    found = await connection.fetchrow(_PLACE, stored(campaign))
    if found is None:
        raise NotFound(f"there is no campaign {campaign}")
    seq, taken, free = found
    behind = await connection.fetchval(_STARTED, seq)
    plan = await planned(connection, seq, taken, min(taken + limit, free))
    sizes = await connection.fetch(_SIZES, seq, [*plan.values()])
    return KeyProgress(behind, tuple(1 + size for (size,) in sizes))
