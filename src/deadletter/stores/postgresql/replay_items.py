"""What became of each letter in each campaign, and how many of each."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.core.errors import NotFound
from deadletter.core.seals import MASK, ItemMoves, Marks, item_changes
from deadletter.core.text import shown, stored
from deadletter.ports.letters import ReplayItems

from .database import Again, Connection, sealing_of
from .letters_rows import columns
from .rows import legible

_MARK: Final = """
UPDATE deadletter.campaign_items SET outcome = $1, settled_at = $2,
    confirmed_at = CASE outcome WHEN 'confirmed' THEN settled_at END
WHERE campaign = $3 AND ordinal = ANY($4)
"""
_EXPLAIN: Final = """
UPDATE deadletter.campaign_items i SET why = t.why
FROM unnest($1::text[], $2::int[], $3::int[]) AS t (why, campaign, ordinal)
WHERE i.campaign = t.campaign AND i.ordinal = t.ordinal
"""
_KEYS: Final = """
SELECT campaign, outcome, marks_key FROM deadletter.campaign_outcomes
WHERE campaign = ANY($1)
"""


def counting(first: int) -> str:
    """
    Counts what `changes` says, which are the five columns from `$first` on.

    It leaves out what is made with another key by now, see `check_counted`.
    """
    columns = ("int", "text", "bigint", "bigint", "bytea")
    given = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(columns, first))
    return f"""
INSERT INTO deadletter.campaign_outcomes AS t (campaign, outcome, n, marks, marks_key)
SELECT * FROM unnest({given})
ON CONFLICT (campaign, outcome) DO UPDATE
SET n = t.n + excluded.n, marks = (t.marks + excluded.marks) & {MASK}
WHERE t.marks_key = excluded.marks_key
"""  # noqa: S608 -- made of constants


_COUNT: Final = counting(1)
_FINISH: Final = """
UPDATE deadletter.campaigns g SET state = 'done'
WHERE seq = ANY($1) AND state = 'running' AND NOT EXISTS (
    SELECT 1 FROM deadletter.campaign_outcomes WHERE campaign = g.seq AND n > 0
    AND outcome IN ('planned', 'waiting', 'sending', 'sent'))
"""
_TOLD: Final = """
l.id, g.id, g.actor, g.reason, g.mailbox, i.generation, i.outcome, i.taken_at,
i.sent_at, i.settled_at, i.confirmed_at, i.why
"""
_PLANNED: Final = """
l.id, g.id, g.actor, g.reason, g.mailbox, 0, 'planned', NULL, NULL, NULL, NULL, ''
"""
_WAITING: Final = _PLANNED.replace("planned", Outcome.WAITING)
_WANTED: Final = """
unnest($1::text[]) WITH ORDINALITY AS w (id, place)
JOIN deadletter.letters l ON l.id = w.id
"""
_ITEMS: Final = f"""
SELECT {_TOLD}, w.place, g.seq FROM {_WANTED}
JOIN deadletter.campaign_items i ON i.letter = l.seq
JOIN deadletter.campaigns g ON g.seq = i.campaign
UNION ALL
SELECT {_PLANNED}, w.place, g.seq FROM {_WANTED}
JOIN deadletter.campaign_plans p ON p.reach @> l.seq
JOIN deadletter.campaigns g ON g.seq = p.campaign
WHERE p.first + array_position(p.letters, l.seq) - 1 >= g.taken
UNION ALL
SELECT {_WAITING}, w.place, g.seq FROM {_WANTED}
JOIN deadletter.campaign_waiting q ON q.letter = l.seq
JOIN deadletter.campaigns g ON g.seq = q.campaign
ORDER BY place, seq
"""  # noqa: S608 -- made of constants
_SIZE: Final = """
SELECT seq, items, (
    SELECT count(*) FROM deadletter.campaign_waiting WHERE campaign = seq)
FROM deadletter.campaigns WHERE id = $1
"""
# Those that wait stand behind all that have items, in the order they go.
_STILL_WAITING: Final = f"""
SELECT {_WAITING} FROM deadletter.campaigns g
JOIN deadletter.campaign_waiting w ON w.campaign = g.seq
JOIN deadletter.letters l ON l.seq = w.letter
WHERE g.seq = $1 ORDER BY w.place LIMIT $2 OFFSET $3
"""  # noqa: S608 -- made of constants
_OF_CAMPAIGN: Final = f"""
SELECT {_TOLD}, i.ordinal FROM deadletter.campaigns g
JOIN deadletter.campaign_items i ON i.campaign = g.seq
JOIN deadletter.letters l ON l.seq = i.letter
WHERE g.seq = $1 AND i.ordinal >= $2 AND i.ordinal < $3
UNION ALL
SELECT {_PLANNED}, p.first + w.place - 1 FROM deadletter.campaigns g
JOIN deadletter.campaign_plans p ON p.campaign = g.seq
CROSS JOIN unnest(p.letters) WITH ORDINALITY AS w (letter, place)
JOIN deadletter.letters l ON l.seq = w.letter
WHERE g.seq = $1 AND p.until > $2 AND p.first < $3
    AND p.first + w.place - 1 >= greatest($2, g.taken) AND p.first + w.place - 1 < $3
ORDER BY ordinal
"""  # noqa: S608 -- made of constants

_WAITING_SINCE: Final = """
SELECT l.source, min(i.taken_at) FROM deadletter.letter_marks m
JOIN deadletter.letters l ON l.seq = m.letter
JOIN deadletter.campaign_items i ON i.letter = m.letter AND i.generation = m.replays
WHERE m.state = 'replaying' GROUP BY l.source
"""


async def waiting_since(connection: Connection) -> dict[str, datetime]:
    """When the copy was taken that each source has waited for longest."""
    return {shown(name): at for name, at in await connection.fetch(_WAITING_SINCE)}


async def mark(
    connection: Connection, campaign: int, ordinals: Sequence[int], outcome: Outcome, now: datetime
) -> None:
    """Write down what became of items."""
    await connection.execute(_MARK, outcome, now, campaign, ordinals)


async def explain(connection: Connection, whys: Sequence[tuple[str, int, int]]) -> None:
    """Write down why items were refused: the text, campaign and ordinal of each."""
    if whys:
        rows = [(stored(why), *item) for why, *item in whys]
        await connection.execute(_EXPLAIN, *columns(rows, 3))


async def count(connection: Connection, moves: ItemMoves) -> None:
    """Write down which letters have another outcome in a campaign now."""
    changed = await changes(connection, moves)
    if changed[0]:
        check_counted(await connection.execute(_COUNT, *changed), changed)


async def changes(connection: Connection, moves: ItemMoves) -> list[Sequence[Any]]:
    """What changes in the sums of campaigns, as columns for `counting`."""
    sealing = sealing_of(connection)
    campaigns = sorted({campaign for campaign, _, _ in moves})
    keys = {
        (campaign, outcome): key_id
        for campaign, outcome, key_id in await connection.fetch(_KEYS, campaigns)
    }

    def marks(campaign: int, outcome: Outcome) -> Marks:
        return sealing.marks(keys.get((campaign, outcome.value)))

    rows = [
        (campaign, outcome, n, total, keys.get((campaign, outcome), key_id))
        for campaign, outcome, n, total, key_id in item_changes(moves, marks)
    ]
    return columns(rows, 5)


def check_counted(done: str, changed: Sequence[Sequence[Any]]) -> None:
    """Begin the transaction anew if some sums are made with another key by now."""
    if done != f"INSERT 0 {len(changed[0])}":
        raise Again


async def finish(connection: Connection, campaigns: Iterable[int]) -> None:
    """End running campaigns that have nothing left to wait for."""
    await connection.execute(_FINISH, sorted(campaigns))


async def items(connection: Connection, letters: Sequence[str]) -> list[ReplayItem]:
    """Every part these letters had in campaigns, each letter's first to last."""
    wanted = [stored(id_) for id_ in dict.fromkeys(letters)]
    return _told(await connection.fetch(_ITEMS, wanted))


async def of_campaign(connection: Connection, campaign: str, after: int, limit: int) -> ReplayItems:
    """What became of a campaign's letters, in the order they go."""
    found = await connection.fetchrow(_SIZE, stored(campaign))
    if found is None:
        raise NotFound(f"there is no campaign {campaign}")
    seq, size, waiting = found
    end = after + limit
    rows = await connection.fetch(_OF_CAMPAIGN, seq, after, end)
    if waiting and end > size:
        some = (end - max(after, size), max(0, after - size))
        rows += await connection.fetch(_STILL_WAITING, seq, *some)
    told = tuple(_told(rows))
    return ReplayItems(told, end if end < size + waiting else None)


def _told(rows: Iterable[Sequence[Any]]) -> list[ReplayItem]:
    found: list[ReplayItem] = []
    for row in map(legible, rows):
        id_, campaign, actor, reason, to, generation, outcome, *times = row[:12]
        taken_at, sent_at, settled_at, confirmed_at, why = times
        found.append(
            ReplayItem(
                letter_id=id_,
                campaign=campaign,
                actor=actor,
                reason=reason,
                to=to,
                generation=generation,
                outcome=Outcome(outcome),
                taken_at=taken_at,
                sent_at=sent_at,
                settled_at=settled_at,
                confirmed_at=confirmed_at,
                why=why,
            )
        )
    return found
