"""Campaigns as a whole: made, listed, paused, ended, and letters added to them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

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
from deadletter.core.seals import ItemMoves, item_changes
from deadletter.office.transactions.operations import CampaignFilter, CampaignPosition

from .audit import ADD, item_marks
from .sql import fetch, ids, micros, numbers, shown, storable, stored, when, write
from .verification import SqliteReads

_COLUMNS: Final = (
    "id, query, created_at, actor, reason, owner, runs_as, state, mailbox, rate, cap, care,"
    " through, plan, approved_by"
)
_LATEST: Final = """
SELECT * FROM campaigns
WHERE substr(id, 1, length(:begins)) = :begins
AND (:only IS NULL OR state = :only)
AND (:owner IS NULL OR owner = :owner)
AND (:behind IS NULL OR seq < :behind)
ORDER BY seq DESC LIMIT :limit
"""
_PLACE: Final = """
SELECT seq FROM campaigns WHERE id = :after AND (:owner IS NULL OR owner = :owner)
"""
_COUNTS: Final = """
SELECT campaign, outcome, n FROM campaign_outcomes
WHERE campaign IN (SELECT value FROM json_each(?)) AND n > 0
"""
_FIND: Final = """
SELECT seq, id, state, cap, actor, runs_as, items, keyed, taken, free, mailbox
FROM campaigns WHERE id = ?
"""
_START: Final = f"INSERT INTO campaigns ({_COLUMNS}) VALUES"
_CHANGE: Final = "UPDATE campaigns SET state = ?, runs_as = ? WHERE seq = ?"
_FINISH: Final = """
UPDATE campaigns SET state = 'done'
WHERE seq IN (SELECT value FROM json_each(?)) AND state = 'running' AND NOT EXISTS (
    SELECT 1 FROM campaign_outcomes WHERE campaign = campaigns.seq AND n > 0
    AND outcome IN ('planned', 'waiting', 'sending', 'sent'))
"""
_REWRITE: Final = "UPDATE campaigns SET care = ?, plan = ?, approved_by = ? WHERE seq = ?"
_SLICE: Final = (
    "INSERT OR REPLACE INTO campaign_slices (campaign, place, contents) VALUES (?, ?, ?)"
)
_SLICES: Final = """
SELECT contents FROM campaign_slices
WHERE campaign = ? AND place >= ? AND place < ? ORDER BY place
"""
_COUNT: Final = "INSERT INTO campaign_outcomes (campaign, outcome, n, marks, marks_key) VALUES"
_COUNT_MORE: Final = f"""
ON CONFLICT (campaign, outcome) DO UPDATE
SET n = n + excluded.n, marks = marks + excluded.marks {ADD}
"""
# Oldest first, and each letter once, also when it is planned again.
_OLDEST_FIRST: Final = """
ORDER BY ifnull(l.sent_at, l.first_failed_at), l.sent_place, l.message_id, l.seq
"""
_ORDERED: Final = f"""
SELECT l.id FROM json_each(?) j CROSS JOIN letters l ON l.id = j.value {_OLDEST_FIRST}
"""  # noqa: S608 -- all of it is ours
_ADD: Final = f"""
INSERT INTO campaign_items (campaign, ordinal, letter)
SELECT :campaign, :items + row_number() OVER ({_OLDEST_FIRST}) - 1, l.seq
FROM json_each(:ids) j CROSS JOIN letters l ON l.id = j.value
WHERE NOT EXISTS (
    SELECT 1 FROM campaign_items WHERE letter = l.seq AND campaign = :campaign)
"""  # noqa: S608 -- all of it is ours
_NEW: Final = "SELECT letter FROM campaign_items WHERE campaign = ? AND ordinal >= ?"
_ADDED: Final = "UPDATE campaigns SET items = ?, free = ? WHERE seq = ?"

# Letters of one key: each waits for the one before it to end.

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
_ADD_ITEMS: Final = "INSERT INTO campaign_items (campaign, ordinal, letter) VALUES"
_WAIT: Final = "INSERT INTO campaign_waiting (campaign, follows, letter, head, place) VALUES"
_KEYED: Final = "UPDATE campaigns SET keyed = 1, items = ?, free = ? WHERE seq = ?"


class CampaignOperations(SqliteReads):
    """Operations on campaigns; none of them ever waits."""

    async def find_campaign(self, id: str) -> CampaignPosition | None:
        """Return the position of a campaign."""
        row = self._connection.execute(_FIND, (stored(id),)).fetchone()
        if row is None:
            return None
        seq, id_, state, *more = map(shown, row)
        return CampaignPosition(seq, id_, CampaignState(state), *more)

    async def find_campaigns(self, wanted: CampaignFilter) -> list[Campaign]:
        """Return campaigns with their counts, latest first."""
        owner, behind = stored(wanted.owner), None
        if wanted.after is not None:
            known = {"after": stored(wanted.after), "owner": owner}
            found = self._connection.execute(_PLACE, known).fetchone()
            if found is None:
                raise left_off_nowhere(wanted.after)
            (behind,) = found
        asked = {
            "limit": wanted.limit,
            "begins": stored(wanted.begins),
            "only": wanted.only,
            "owner": owner,
            "behind": behind,
        }
        rows = fetch(self._connection, f"seq, {_COLUMNS}", _LATEST, asked)
        counts: dict[int, dict[Outcome, int]] = {row[0]: {} for row in rows}
        columns = "campaign, outcome, n"
        for seq, outcome, n in fetch(self._connection, columns, _COUNTS, (numbers(counts),)):
            counts[seq][Outcome(outcome)] = n
        return [
            campaign_of([id_, query, when(created_at), *more], counts[seq])
            for seq, id_, query, created_at, *more in rows
        ]

    async def start_campaign(self, campaign: Campaign) -> None:
        """Write a campaign without letters, unless it exists."""
        id_, query, created_at, *more = campaign_row(campaign)
        row = storable((id_, query, micros(created_at), *more))
        write(self._connection, _START, [row], "ON CONFLICT (id) DO NOTHING")

    async def set_campaign(
        self, course: CampaignPosition, state: CampaignState, runs_as: str
    ) -> None:
        """Write another state of a campaign, and the principal that it runs as."""
        self._connection.execute(_CHANGE, (state.value, stored(runs_as), course.seq))

    async def rewrite_campaign(self, course: CampaignPosition, campaign: Campaign) -> None:
        """Write the precautions, the plan and the approval of a campaign."""
        care, plan = written(campaign.care), written_plan(campaign.plan)
        row = (care, stored(plan), stored(campaign.approved_by), course.seq)
        self._connection.execute(_REWRITE, row)

    async def write_slices(self, course: CampaignPosition, slices: Mapping[int, str]) -> None:
        """Write slices of a kept plan by their place, new or again."""
        rows = [(course.seq, place, contents) for place, contents in slices.items()]
        self._connection.executemany(_SLICE, rows)

    async def find_slices(self, course: CampaignPosition, first: int, limit: int) -> list[str]:
        """Return slices of a kept plan in order, from the place `first` on."""
        span = (course.seq, first, first + limit)
        return [contents for (contents,) in self._connection.execute(_SLICES, span)]

    async def finish_campaigns(self, campaigns: Collection[int]) -> None:
        """End running campaigns that have nothing left to wait for."""
        self._connection.execute(_FINISH, (numbers(campaigns),))

    async def sent_order(self, letters: Sequence[str]) -> list[str]:
        """Return the ids of letters that exist, oldest sent first."""
        return [row[0] for row in fetch(self._connection, "id", _ORDERED, (ids(letters),))]

    async def plan_items(
        self, course: CampaignPosition, campaign: Campaign, letters: Sequence[str]
    ) -> int:
        """Add letters to a campaign, oldest sent first; return the number of new ones."""
        first = course.items
        adding = {"campaign": course.seq, "items": first, "ids": ids(letters)}
        self._connection.execute(_ADD, adding)
        new = [row[0] for row in self._connection.execute(_NEW, (course.seq, first))]
        end = first + len(new)
        self._connection.execute(_ADDED, (end, end, course.seq))
        await self.count_items({(course.seq, None, Outcome.PLANNED): new})
        if campaign.care.key_order:
            await self._chain(course.seq, first, campaign.to)
        return len(new)

    async def count_items(self, moves: ItemMoves) -> None:
        """Change the number of items by outcome, and their sums."""
        marks = item_marks(self._connection, {campaign for campaign, _, _ in moves})
        rows = [
            (campaign, outcome.value, *more)
            for campaign, outcome, *more in item_changes(moves, marks)
        ]
        write(self._connection, _COUNT, rows, _COUNT_MORE)

    async def _chain(self, campaign: int, first: int, to: str | None) -> None:
        """Let items from an ordinal on wait for each other by key."""
        connection = self._connection
        (has_keys,) = connection.execute(_HAS_KEYS, (campaign, first)).fetchone()
        if not has_keys:
            return
        values = {"campaign": campaign, "first": first, "to": to}
        rows = connection.execute(_LETTERS, values).fetchall()
        waiting = [
            (campaign, follows, letter, head, place)
            for letter, place, follows, head in rows
            if follows is not None
        ]
        if not waiting:
            return
        free = [row[0] for row in rows if row[2] is None]
        connection.execute(_TAKE_BACK, (campaign, first))
        self._add_items(campaign, first, free)
        write(connection, _WAIT, waiting)
        end = first + len(free)
        connection.execute(_KEYED, (end, end, campaign))
        letters = [row[2] for row in waiting]
        await self.count_items({(campaign, Outcome.PLANNED, Outcome.WAITING): letters})

    def _add_items(self, campaign: int, first: int, letters: Iterable[int]) -> None:
        items = [(campaign, ordinal, letter) for ordinal, letter in enumerate(letters, first)]
        write(self._connection, _ADD_ITEMS, items)
