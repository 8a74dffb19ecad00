"""Campaigns as a whole: made, listed, paused, ended, and letters added to them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Outcome,
    campaign_of,
    campaign_row,
    written,
    written_plan,
)
from deadletter.core.query.search_step import left_off_nowhere
from deadletter.core.seals import MASK, ItemMoves, Marks, item_changes
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import CampaignFilter, CampaignPosition

from .database import Connection, SerializationFailure, sealing_of
from .letters_rows import columns
from .rows import legible, storable
from .verification import PostgresqlReads

_COLUMNS: Final = (
    "id, query, created_at, actor, reason, owner, runs_as, state, mailbox, rate, cap, care,"
    " through, plan, approved_by"
)
_LATEST: Final = f"""
SELECT seq, {_COLUMNS} FROM deadletter.campaigns
WHERE starts_with(id, $2) AND ($3::text IS NULL OR state = $3)
AND ($4::text IS NULL OR owner = $4) AND ($5::int IS NULL OR seq < $5)
ORDER BY seq DESC LIMIT $1
"""  # noqa: S608 -- made of constants
_PLACE: Final = """
SELECT seq FROM deadletter.campaigns
WHERE id = $1 AND ($2::text IS NULL OR owner = $2)
"""
_COUNTS: Final = """
SELECT campaign, outcome, n FROM deadletter.campaign_outcomes
WHERE campaign = ANY($1) AND n > 0
"""
_FIND: Final = """
SELECT seq, id, state, cap, actor, runs_as, items, keyed, taken, free, mailbox, surely,
    late
FROM deadletter.campaigns WHERE id = $1
"""
_START: Final = f"""
INSERT INTO deadletter.campaigns ({_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (id) DO NOTHING
"""  # noqa: S608 -- made of constants
_CHANGE: Final = """
UPDATE deadletter.campaigns SET state = $1, runs_as = $2 WHERE seq = $3
"""
_REWRITE: Final = """
UPDATE deadletter.campaigns SET care = $1, plan = $2, approved_by = $3 WHERE seq = $4
"""
_SLICE: Final = """
INSERT INTO deadletter.campaign_slices (campaign, place, contents)
SELECT $1, * FROM unnest($2::int[], $3::text[])
ON CONFLICT (campaign, place) DO UPDATE SET contents = excluded.contents
"""
_SLICES: Final = """
SELECT contents FROM deadletter.campaign_slices
WHERE campaign = $1 AND place >= $2 AND place < $3 ORDER BY place
"""
_FINISH: Final = """
UPDATE deadletter.campaigns g SET state = 'done'
WHERE seq = ANY($1) AND state = 'running' AND NOT EXISTS (
    SELECT 1 FROM deadletter.campaign_outcomes WHERE campaign = g.seq AND n > 0
    AND outcome IN ('planned', 'waiting', 'sending', 'sent'))
"""
_ADDED: Final = """
UPDATE deadletter.campaigns SET items = $1, free = $1, late = $1 WHERE seq = $2
"""
_KEYS: Final = """
SELECT campaign, outcome, marks_key FROM deadletter.campaign_outcomes
WHERE campaign = ANY($1)
"""


def counting(first: int) -> str:
    """
    Return a statement that counts the five columns of `changes`, from `$first` on.

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
_ADD_FIRST: Final = _ADD.format(those="")
# Each letter once, also when it is planned again.
_ADD_MORE: Final = _ADD.format(
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

# Letters of one key: each waits for the one before it to end.

_HAS_KEYS: Final = """
SELECT EXISTS (
    SELECT 1 FROM deadletter.letters WHERE id = ANY($1::text[]) AND key IS NOT NULL)
"""
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
_WAIT: Final = """
INSERT INTO deadletter.campaign_waiting (campaign, follows, letter, head, place)
SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::int[])
"""
_KEYED: Final = "UPDATE deadletter.campaigns SET keyed = true WHERE seq = $1"


class CampaignOperations(PostgresqlReads):
    """Operations on campaigns; what they find is locked, unless somebody only looks."""

    def __init__(
        self,
        connection: Connection,
        *,
        places: dict[tuple[str, str], int] | None = None,
        locks: bool = True,
    ) -> None:
        super().__init__(connection, locks=locks)
        # Ordinals of letters that were taken, by campaign and id: found the faster when they
        # are sent. Others are looked up.
        self._places = {} if places is None else places
        # Before which main and late ordinals nothing is being sent, by campaign.
        self._done: dict[int, tuple[int, int]] = {}
        self._letters: dict[int, int] = {}  # of items that were found, by ordinal

    async def find_campaign(self, id: str) -> CampaignPosition | None:
        """Return the position of a campaign."""
        row = await self._connection.fetchrow(f"{_FIND} {self._lock}", stored(id))
        if row is None:
            return None
        seq, id_, state, *more, surely, late = legible(row)
        self._done[seq] = surely, late
        return CampaignPosition(seq, id_, CampaignState(state), *more)

    async def find_campaigns(self, wanted: CampaignFilter) -> list[Campaign]:
        """Return campaigns with their counts, latest first."""
        behind, owner = None, stored(wanted.owner)
        if wanted.after is not None:
            behind = await self._connection.fetchval(_PLACE, stored(wanted.after), owner)
            if behind is None:
                raise left_off_nowhere(wanted.after)
        rows = await self._connection.fetch(
            _LATEST, wanted.limit, stored(wanted.begins), wanted.only, owner, behind
        )
        counts: defaultdict[int, dict[Outcome, int]] = defaultdict(dict)
        for seq, outcome, n in await self._connection.fetch(_COUNTS, [row[0] for row in rows]):
            counts[seq][Outcome(outcome)] = n
        return [campaign_of(legible(row[1:]), counts[row[0]]) for row in rows]

    async def start_campaign(self, campaign: Campaign) -> None:
        """Write a campaign without letters, unless it exists."""
        await self._connection.execute(_START, *storable(campaign_row(campaign)))

    async def set_campaign(
        self, course: CampaignPosition, state: CampaignState, runs_as: str
    ) -> None:
        """Write another state of a campaign, and the principal that it runs as."""
        await self._connection.execute(_CHANGE, state, stored(runs_as), course.seq)

    async def rewrite_campaign(self, course: CampaignPosition, campaign: Campaign) -> None:
        """Write the precautions, the plan and the approval of a campaign."""
        row = (written(campaign.care), written_plan(campaign.plan), campaign.approved_by)
        await self._connection.execute(_REWRITE, *storable(row), course.seq)

    async def write_slices(self, course: CampaignPosition, slices: Mapping[int, str]) -> None:
        """Write slices of a kept plan by their place, new or again."""
        await self._connection.execute(_SLICE, course.seq, [*slices], [*slices.values()])

    async def find_slices(self, course: CampaignPosition, first: int, limit: int) -> list[str]:
        """Return slices of a kept plan in order, from the place `first` on."""
        rows = await self._connection.fetch(_SLICES, course.seq, first, first + limit)
        return [contents for (contents,) in rows]

    async def finish_campaigns(self, campaigns: Collection[int]) -> None:
        """End running campaigns that have nothing left to wait for."""
        await self._connection.execute(_FINISH, sorted(campaigns))

    async def sent_order(self, ids: Sequence[str]) -> list[str]:
        """Return the ids of letters that exist, oldest sent first."""
        wanted = [stored(id_) for id_ in ids]
        return [shown(id_) for (id_,) in await self._connection.fetch(_ORDERED, wanted)]

    async def plan_items(
        self, course: CampaignPosition, campaign: Campaign, ids: Sequence[str]
    ) -> int:
        """Add letters to a campaign, oldest sent first; return the number of new ones."""
        connection, seq = self._connection, course.seq
        wanted = [stored(id_) for id_ in dict.fromkeys(ids)]
        waiting = 0
        if campaign.care.key_order and await connection.fetchval(_HAS_KEYS, wanted):
            new = [id_ for (id_,) in await connection.fetch(_NOT_YET, wanted, seq)]
            wanted = await self._chain(seq, new, stored(campaign.to))
            waiting = len(new) - len(wanted)
        adding = _ADD_MORE if course.items else _ADD_FIRST
        planned = [*await connection.fetchval(adding, seq, course.items, wanted)]
        await connection.execute(_ADDED, course.items + len(planned), seq)
        await self.count_items({(seq, None, Outcome.PLANNED): planned})
        return len(planned) + waiting

    async def count_items(self, moves: ItemMoves) -> None:
        """Change the number of items by outcome, and their sums."""
        changed = await self._changes(moves)
        if changed[0]:
            check_counted(await self._connection.execute(_COUNT, *changed), changed)

    async def _changes(self, moves: ItemMoves) -> list[Sequence[Any]]:
        """Return the changes of sums of campaigns, as columns for `counting`."""
        sealing = sealing_of(self._connection)
        campaigns = sorted({campaign for campaign, _, _ in moves})
        found = await self._connection.fetch(_KEYS, campaigns)
        keys = {(campaign, outcome): key_id for campaign, outcome, key_id in found}

        def marks(campaign: int, outcome: Outcome) -> Marks:
            return sealing.marks(keys.get((campaign, outcome.value)))

        rows = [
            (campaign, outcome, n, total, keys.get((campaign, outcome), key_id))
            for campaign, outcome, n, total, key_id in item_changes(moves, marks)
        ]
        return columns(rows, 5)

    async def _chain(self, campaign: int, ids: Sequence[str], to: str | None) -> list[str]:
        """
        Let letters, given in the order they go, wait for each other by key.

        Returns the ids of those that need not wait.
        """
        rows = await self._connection.fetch(_CHAINS, ids, to)
        waiting = [
            (follows, letter, head, place)
            for place, (letter, follows, head) in enumerate(rows)
            if follows is not None
        ]
        if waiting:
            await self._connection.execute(_WAIT, campaign, *zip(*waiting, strict=True))
            await self._connection.execute(_KEYED, campaign)
            letters = [letter for _, letter, _, _ in waiting]
            await self.count_items({(campaign, None, Outcome.WAITING): letters})
        found = zip(ids, rows, strict=True)
        return [id_ for id_, (_, follows, _) in found if follows is None]


def check_counted(done: str, changed: Sequence[Sequence[Any]]) -> None:
    """Begin the transaction anew if some sums are made with another key by now."""
    if done != f"INSERT 0 {len(changed[0])}":
        raise SerializationFailure
