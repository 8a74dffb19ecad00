"""What became of each letter in each campaign, and how many of each."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.core.errors import NotFound
from deadletter.core.escaping import stored
from deadletter.ports.letters import ReplayItems

from .letters_rows import columns
from .pool import Connection
from .text import legible

Tally: TypeAlias = Counter[tuple[int, Outcome]]
"""How many items more or less there are, by campaign and outcome."""

_MARK: Final = """
UPDATE deadletter.campaign_items SET outcome = $1, settled_at = $2,
    confirmed_at = CASE outcome WHEN 'confirmed' THEN settled_at END
WHERE campaign = $3 AND ordinal = ANY($4)
"""
_COUNT: Final = """
INSERT INTO deadletter.campaign_outcomes AS t (campaign, outcome, n)
SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[])
ON CONFLICT (campaign, outcome) DO UPDATE SET n = t.n + excluded.n
"""
_FINISH: Final = """
UPDATE deadletter.campaigns g SET state = 'done'
WHERE seq = ANY($1) AND state = 'running' AND NOT EXISTS (
    SELECT 1 FROM deadletter.campaign_outcomes WHERE campaign = g.seq AND n > 0
    AND outcome IN ('planned', 'sending', 'sent'))
"""
_TOLD: Final = """
l.id, g.id, g.actor, g.reason, g.mailbox, i.generation, i.outcome, i.taken_at,
i.sent_at, i.settled_at, i.confirmed_at
"""
_PLANNED: Final = """
l.id, g.id, g.actor, g.reason, g.mailbox, 0, 'planned', NULL, NULL, NULL, NULL
"""
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
ORDER BY place, seq
"""  # noqa: S608 -- made of constants
_SIZE: Final = "SELECT seq, items FROM deadletter.campaigns WHERE id = $1"
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


async def mark(
    connection: Connection,
    campaign: int,
    ordinals: Sequence[int],
    outcome: Outcome,
    now: datetime,
) -> None:
    """Write down what became of items."""
    await connection.execute(_MARK, outcome, now, campaign, ordinals)


async def count(connection: Connection, tally: Tally) -> None:
    """Write down how many items more or less there are."""
    rows = sorted((*key, n) for key, n in tally.items() if n)
    if rows:
        await connection.execute(_COUNT, *columns(rows, 3))


async def finish(connection: Connection, campaigns: Iterable[int]) -> None:
    """End running campaigns that have nothing left to wait for."""
    await connection.execute(_FINISH, sorted(campaigns))


async def items(connection: Connection, letters: Sequence[str]) -> list[ReplayItem]:
    """Every part these letters had in campaigns, each letter's first to last."""
    wanted = [stored(id_) for id_ in dict.fromkeys(letters)]
    return _told(await connection.fetch(_ITEMS, wanted))


async def of_campaign(
    connection: Connection, campaign: str, after: int, limit: int
) -> ReplayItems:
    """What became of a campaign's letters, in the order they go."""
    found = await connection.fetchrow(_SIZE, stored(campaign))
    if found is None:
        raise NotFound(f"there is no campaign {campaign}")
    seq, size = found
    end = after + limit
    rows = await connection.fetch(_OF_CAMPAIGN, seq, after, end)
    return ReplayItems(tuple(_told(rows)), end if end < size else None)


def _told(rows: Iterable[Sequence[Any]]) -> list[ReplayItem]:
    found: list[ReplayItem] = []
    for row in map(legible, rows):
        id_, campaign, actor, reason, to, generation, outcome, *times = row[:11]
        taken_at, sent_at, settled_at, confirmed_at = times
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
            )
        )
    return found
