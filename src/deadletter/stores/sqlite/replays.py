"""Letters of a campaign: claimed bit by bit, sent, settled; what campaigns did with a letter."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.campaign import Outcome, ReplayItem, item_of
from deadletter.core.letter import State
from deadletter.core.message import Message
from deadletter.core.replay_rules import Candidate, Going, Interrupted
from deadletter.core.seals import ItemMoves
from deadletter.office.transactions.operations import Brief, CampaignPosition, ReplayedCopy, Shifts
from deadletter.ports.letters import KeyProgress, ReplayItems, ReplayNext

from . import groups
from .campaigns import CampaignOperations
from .letters_rows import messages
from .sql import Row, fetch, ids, micros, numbers, packed, stored, when, write

# The next letters.

_SENDING: Final = """
SELECT i.ordinal, i.letter, i.generation, l.state, l.replays
FROM campaign_items i INDEXED BY campaign_items_sending
LEFT JOIN letters l ON l.seq = i.letter
WHERE i.campaign = ? AND i.outcome = 'sending' AND i.ordinal > ?
ORDER BY i.ordinal LIMIT ?
"""
_CANDIDATE: Final = "seq, id, source, fingerprint, state, replays, ordinal"
_COPY: Final = f"{_CANDIDATE}, size, hex(rest), crc, hex(digest)"
_CANDIDATES: Final = """
SELECT l.seq, l.id, l.source, l.fingerprint, l.state, l.replays, i.ordinal, {contents}
FROM campaign_items i
CROSS JOIN letters l ON l.seq = i.letter
CROSS JOIN letter_contents c ON c.letter = l.seq
WHERE i.campaign = :campaign AND {ordinals} ORDER BY ordinal
"""
_MESSAGES: Final = "c.digest, c.rest, c.body"
# Without bodies, for those who do not need to see them.
_COPIED: Final = "l.size, c.rest, c.digest, crc32(c.body) AS crc"
_SPAN: Final = "ordinal >= :start AND ordinal < :end"
_GIVEN: Final = "ordinal IN (SELECT value FROM json_each(:ordinals))"
_SELECT: Final = {
    (bodies, is_span): _CANDIDATES.format(contents=contents, ordinals=ordinals)
    for bodies, contents in ((True, _MESSAGES), (False, _COPIED))
    for is_span, ordinals in ((True, _SPAN), (False, _GIVEN))
}
_GOING: Final = f"""
campaign = :campaign AND {_SPAN}
AND ordinal NOT IN (SELECT value FROM json_each(:skipped))
"""  # noqa: S608 -- all of it is ours
_TAKE: Final = f"""
UPDATE letters SET state = 'replaying', replays = replays + 1, revision = revision + 1
WHERE seq IN (SELECT letter FROM campaign_items WHERE {_GOING})
"""  # noqa: S608 -- all of it is ours
_TAKEN: Final = f"""
UPDATE campaign_items SET outcome = :outcome, taken_at = :now, sent_at = :sent,
    generation = (SELECT replays FROM letters WHERE seq = letter)
WHERE {_GOING}
"""  # noqa: S608 -- all of it is ours
_MOVE_ON: Final = "UPDATE campaigns SET taken = ? WHERE seq = ?"
# By that index, or SQLite would go through the whole campaign every time.
_SENT: Final = """
UPDATE campaign_items INDEXED BY campaign_items_sending
SET outcome = 'sent', sent_at = ?
WHERE campaign = ? AND outcome = 'sending' AND letter IN (
    SELECT l.seq FROM json_each(?) CROSS JOIN letters l ON l.id = value)
RETURNING letter
"""
_NAMED: Final = "id, source, name, replays"
_NEXT: Final = """
SELECT l.id, l.source, ifnull(nullif(l.business_key, ''), l.message_id) AS name, l.replays
"""
_UPCOMING: Final = f"""{_NEXT}
FROM campaign_items i CROSS JOIN letters l ON l.seq = i.letter
WHERE i.campaign = ? AND i.ordinal >= ? AND i.ordinal < ? ORDER BY i.ordinal
"""
_READY_NEXT: Final = f"""{_NEXT}
FROM campaign_waiting w CROSS JOIN letters l ON l.seq = w.letter
WHERE w.campaign = ? AND w.ready = 1 ORDER BY w.place LIMIT ?
"""

# Their outcomes.

_COPIES: Final = """
SELECT l.seq, l.id, l.source, l.fingerprint, l.state, l.replays, i.generation,
       i.campaign, i.ordinal, i.outcome, g.cap, g.keyed
FROM json_each(?) CROSS JOIN letters l ON l.id = json_extract(value, '$[0]')
CROSS JOIN campaign_items i
    ON i.letter = l.seq AND i.generation = json_extract(value, '$[1]')
CROSS JOIN campaigns g ON g.seq = i.campaign
"""
_FOUND: Final = """
seq, id, source, fingerprint, state, replays, generation, campaign, ordinal, outcome, cap, keyed
"""
_MARK: Final = """
UPDATE campaign_items SET outcome = ?, settled_at = ?,
    confirmed_at = CASE outcome WHEN 'confirmed' THEN settled_at END
WHERE campaign = ? AND ordinal IN (SELECT value FROM json_each(?))
RETURNING letter
"""
_EXPLAIN: Final = "UPDATE campaign_items SET why = ? WHERE campaign = ? AND ordinal = ?"

# Letters that wait for others of their key.

_READY: Final = """
SELECT letter FROM campaign_waiting WHERE campaign = ? AND ready = 1
ORDER BY place LIMIT ?
"""
_GONE: Final = """
DELETE FROM campaign_waiting
WHERE campaign = ? AND letter IN (SELECT value FROM json_each(?))
"""
_GROW: Final = "UPDATE campaigns SET items = items + ? WHERE seq = ?"
_FREE: Final = """
UPDATE campaign_waiting SET ready = 1
WHERE campaign = ? AND follows IN (SELECT value FROM json_each(?))
"""
_BEHIND: Final = """
WITH RECURSIVE behind (letter, place) AS (
    SELECT letter, place FROM campaign_waiting
    WHERE campaign = :campaign AND follows IN (SELECT value FROM json_each(:letters))
    UNION ALL
    SELECT w.letter, w.place FROM behind b CROSS JOIN campaign_waiting w
    ON w.campaign = :campaign AND w.follows = b.letter
)
SELECT letter FROM behind ORDER BY place
"""
_ITEMS: Final = "SELECT items FROM campaigns WHERE seq = ?"
_HOLD: Final = "INSERT INTO campaign_items (campaign, ordinal, letter, outcome, settled_at) VALUES"
_STARTED: Final = """
SELECT count(*) FROM campaign_waiting w WHERE w.campaign = :campaign AND NOT EXISTS (
    SELECT 1 FROM campaign_items i WHERE i.letter = w.head AND i.campaign = w.campaign
    AND i.outcome = 'planned')
"""
_SIZES: Final = """
SELECT (SELECT count(*) FROM campaign_waiting w
    WHERE w.campaign = i.campaign AND w.head = i.letter)
FROM campaign_items i WHERE i.campaign = ? AND i.ordinal >= ? AND i.ordinal < ?
ORDER BY i.ordinal
"""

# What became of them, to be read.

_TOLD: Final = """
id, campaign_id, actor, reason, mailbox, generation, outcome, taken_at, sent_at,
settled_at, confirmed_at, why
"""
_ITEM: Final = """
SELECT l.id, g.id AS campaign_id, g.actor, g.reason, g.mailbox, i.generation,
       i.outcome, i.taken_at, i.sent_at, i.settled_at, i.confirmed_at, i.why
"""
_WAITING: Final = """
SELECT l.id, g.id AS campaign_id, g.actor, g.reason, g.mailbox, 0 AS generation,
       'waiting' AS outcome, NULL AS taken_at, NULL AS sent_at, NULL AS settled_at,
       NULL AS confirmed_at, '' AS why
"""
_OF_LETTERS: Final = f"""{_ITEM}, j.key, g.seq
FROM json_each(?1) j CROSS JOIN letters l ON l.id = j.value
CROSS JOIN campaign_items i ON i.letter = l.seq
CROSS JOIN campaigns g ON g.seq = i.campaign
UNION ALL {_WAITING}, j.key, g.seq
FROM json_each(?1) j CROSS JOIN letters l ON l.id = j.value
CROSS JOIN campaign_waiting w ON w.letter = l.seq
CROSS JOIN campaigns g ON g.seq = w.campaign
ORDER BY 13, 14
"""
_OF_CAMPAIGN: Final = f"""{_ITEM}
FROM campaigns g CROSS JOIN campaign_items i ON i.campaign = g.seq
CROSS JOIN letters l ON l.seq = i.letter
WHERE g.seq = ? AND i.ordinal >= ? AND i.ordinal < ?
ORDER BY i.ordinal
"""
# Word by word what the index is limited to, or SQLite does not use it.
_FEW: Final = "i.outcome IN ('failed', 'refused', 'held', 'unconfirmed')"
_FAILED: Final = frozenset({Outcome.FAILED, Outcome.REFUSED, Outcome.HELD, Outcome.UNCONFIRMED})
_WITH_OUTCOME: Final = f"""{_ITEM}, i.ordinal
FROM campaigns g CROSS JOIN campaign_items i ON i.campaign = g.seq
CROSS JOIN letters l ON l.seq = i.letter
WHERE g.seq = :campaign AND i.ordinal >= :after AND {{few}}
AND i.outcome IN (SELECT value FROM json_each(:outcomes))
ORDER BY i.ordinal LIMIT :limit
"""  # noqa: S608 -- all of it is ours
_STILL_WAITING: Final = f"""{_WAITING}
FROM campaigns g CROSS JOIN campaign_waiting w ON w.campaign = g.seq
CROSS JOIN letters l ON l.seq = w.letter
WHERE g.seq = ? ORDER BY w.place LIMIT ? OFFSET ?
"""
_HOW_MANY_WAIT: Final = "SELECT count(*) FROM campaign_waiting WHERE campaign = ?"
_WAITING_SINCE: Final = """
SELECT l.source, min(i.taken_at) AS taken_at
FROM letters l INDEXED BY letters_by_state
CROSS JOIN campaign_items i ON i.letter = l.seq AND i.generation = l.replays
WHERE l.state = 'replaying' GROUP BY l.source
"""


class ReplayOperations(CampaignOperations):
    """Operations on the letters of campaigns; none of them ever waits."""

    async def find_sending(
        self, course: CampaignPosition, behind: int, limit: int
    ) -> list[Interrupted]:
        """Return items that are `sending`, by ordinal, from the one behind `behind` on."""
        columns = "ordinal, letter, generation, state, replays"
        rows = fetch(self._connection, columns, _SENDING, (course.seq, behind, limit))
        return [
            Interrupted(ordinal, letter, generation, state and State(state), replays)
            for ordinal, letter, generation, state, replays in rows
        ]

    async def find_plan(self, course: CampaignPosition, place: int, limit: int) -> Sequence[int]:
        """Return the ordinals of the next planned items, from `place` on."""
        return range(place, min(place + limit, course.free))

    async def free_items(self, course: CampaignPosition, limit: int) -> Sequence[int]:
        """Plan letters whose turn by key has come, counted; return their ordinals."""
        start = course.items
        letters = [one for (one,) in self._connection.execute(_READY, (course.seq, limit))]
        if letters:
            self._leave(course.seq, letters)
            self._add_items(course.seq, start, letters)
            await self.count_items({(course.seq, Outcome.WAITING, Outcome.PLANNED): letters})
        return range(start, start + len(letters))

    async def find_candidates(
        self, course: CampaignPosition, ordinals: Sequence[int], *, bodies: bool
    ) -> list[Candidate]:
        """Return the letters of items, in order; purged ones are missing."""
        asked: dict[str, Any] = {"campaign": course.seq}
        if is_span := isinstance(ordinals, range):
            asked |= {"start": ordinals.start, "end": ordinals.stop}
        else:
            asked["ordinals"] = numbers(ordinals)
        select = _SELECT[bodies, is_span]
        if bodies:
            found = messages(self._connection, _CANDIDATE, select, asked)
            return [Candidate(*(*row[:7], message)) for row, message in found]
        rows = fetch(self._connection, _COPY, select, asked)
        return [Candidate(*(*row[:7], row[7:])) for row in rows]

    async def find_messages(
        self, course: CampaignPosition, letters: Sequence[Candidate]
    ) -> list[Message]:
        """Return the messages of letters that were found with `bodies`."""
        return [one.contents for one in letters]

    async def take_items(
        self, course: CampaignPosition, going: Going, outcome: Outcome, now: datetime
    ) -> None:
        """Write that letters are out, with their next generation."""
        span = {
            "campaign": course.seq,
            "start": going.ordinals[0],
            "end": going.ordinals[-1] + 1,
            "skipped": numbers(going.left),
            "now": micros(now),
            "outcome": outcome.value,
            "sent": micros(now) if outcome is Outcome.SENT else None,
        }
        self._connection.execute(_TAKE, span)
        self._connection.execute(_TAKEN, span)

    async def count_taken(self, shifts: Shifts, moves: ItemMoves) -> None:
        """Change the number of letters by state, and of items by outcome."""
        groups.count(self._connection, shifts)
        await self.count_items(moves)

    async def skip_items(
        self, course: CampaignPosition, ordinals: Sequence[int], before: Outcome, now: datetime
    ) -> list[int]:
        """Write that items are skipped; return the numbers of their letters."""
        return self._mark(course.seq, ordinals, Outcome.SKIPPED, now)

    async def advance(self, course: CampaignPosition, taken: int, sending: Sequence[int]) -> None:
        """Write how far a campaign has come, and end it if nothing is left to wait for."""
        if taken != course.taken:
            self._connection.execute(_MOVE_ON, (taken, course.seq))
        await self.finish_campaigns([course.seq])

    async def mark_sent(
        self, campaign: str, letters: Sequence[str], now: datetime
    ) -> tuple[int, list[int]] | None:
        """Write that the broker has copies; return the numbers of campaign and letters."""
        course = await self.find_campaign(campaign)
        if course is None:
            return None
        values = (micros(now), course.seq, ids(letters))
        return course.seq, [letter for (letter,) in self._connection.execute(_SENT, values)]

    async def find_copies(self, copies: Collection[tuple[str, int]]) -> list[ReplayedCopy]:
        """Return copies by letter id and generation."""
        asked = packed([copy for copy in copies if copy[0].isascii()])
        found = []
        for row in fetch(self._connection, _FOUND, _COPIES, (asked,)):
            generation, campaign, ordinal, outcome, cap, keyed = row[6:]
            found.append(
                ReplayedCopy(
                    brief_of(row), generation, campaign, ordinal, Outcome(outcome), cap, keyed
                )
            )
        return found

    async def settle_items(
        self, campaign: int, ordinals: Sequence[int], outcome: Outcome, now: datetime
    ) -> None:
        """Write the outcome of items."""
        self._mark(campaign, ordinals, outcome, now)

    async def explain_items(self, reasons: Sequence[tuple[str, int, int]]) -> None:
        """Write why items were refused: text, campaign and ordinal of each."""
        rows = [(stored(reason), *item) for reason, *item in reasons]
        self._connection.executemany(_EXPLAIN, rows)

    async def free_waiting(self, campaign: int, letters: Sequence[int]) -> None:
        """Let letters go that wait for these letters by their key."""
        if letters:
            self._connection.execute(_FREE, (campaign, numbers(letters)))

    async def hold_waiting(self, campaign: int, letters: Sequence[int], now: datetime) -> None:
        """Hold all letters back that wait behind these letters by their key."""
        values = {"campaign": campaign, "letters": numbers(letters)}
        behind = [one for (one,) in self._connection.execute(_BEHIND, values)] if letters else []
        if not behind:
            return
        (start,) = self._connection.execute(_ITEMS, (campaign,)).fetchone()
        self._leave(campaign, behind)
        held: list[Row] = [
            (campaign, ordinal, letter, Outcome.HELD.value, micros(now))
            for ordinal, letter in enumerate(behind, start)
        ]
        write(self._connection, _HOLD, held)
        await self.count_items({(campaign, Outcome.WAITING, Outcome.HELD): behind})

    async def find_next(self, course: CampaignPosition, limit: int) -> list[ReplayNext]:
        """Return the next letters of a campaign, those whose turn by key has come first."""
        found: list[Row] = []
        if course.keyed:
            found = fetch(self._connection, _NAMED, _READY_NEXT, (course.seq, limit))
        end = min(course.taken + limit - len(found), course.free)
        found += fetch(self._connection, _NAMED, _UPCOMING, (course.seq, course.taken, end))
        return [ReplayNext(*row) for row in found]

    async def find_progress(self, course: CampaignPosition, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""
        (behind,) = self._connection.execute(_STARTED, {"campaign": course.seq}).fetchone()
        end = min(course.taken + limit, course.free)
        sizes = self._connection.execute(_SIZES, (course.seq, course.taken, end))
        return KeyProgress(behind, tuple(1 + size for (size,) in sizes))

    async def find_items(
        self,
        course: CampaignPosition,
        after: int,
        limit: int,
        outcomes: frozenset[Outcome] | None = None,
    ) -> ReplayItems:
        """Return items of a campaign, in the order they go; with `outcomes`, only of these."""
        if outcomes is not None:
            return self._with_outcomes(course, after, limit, outcomes)
        end, size = after + limit, course.items
        rows = fetch(self._connection, _TOLD, _OF_CAMPAIGN, (course.seq, after, end))
        if course.keyed:
            # Those that wait stand behind all that have items, in the order they go.
            (waiting,) = self._connection.execute(_HOW_MANY_WAIT, (course.seq,)).fetchone()
            some = (course.seq, max(0, end - max(after, size)), max(0, after - size))
            rows += fetch(self._connection, _TOLD, _STILL_WAITING, some)
            size += waiting
        return ReplayItems(tuple(map(_item, rows)), end if end < size else None)

    def _with_outcomes(
        self, course: CampaignPosition, after: int, limit: int, outcomes: frozenset[Outcome]
    ) -> ReplayItems:
        select = _WITH_OUTCOME.format(few=_FEW if outcomes <= _FAILED else "true")
        asked = {
            "campaign": course.seq,
            "after": after,
            "outcomes": packed([outcome.value for outcome in outcomes]),
            "limit": limit + 1,
        }
        rows = fetch(self._connection, f"{_TOLD}, ordinal", select, asked)
        if len(rows) > limit:
            return ReplayItems(tuple(map(_item, rows[:limit])), rows[limit][12])
        if Outcome.WAITING not in outcomes or not course.keyed:
            return ReplayItems(tuple(map(_item, rows)))
        skipped, size = max(0, after - course.items), limit - len(rows)
        some = (course.seq, size + 1, skipped)
        waiting = fetch(self._connection, _TOLD, _STILL_WAITING, some)
        items = tuple(map(_item, [*rows, *waiting[:size]]))
        return ReplayItems(items, course.items + skipped + size if len(waiting) > size else None)

    async def find_replays(self, letters: Sequence[str]) -> list[ReplayItem]:
        """Return every part that letters had in campaigns, each letter's first to last."""
        return [_item(row) for row in fetch(self._connection, _TOLD, _OF_LETTERS, (ids(letters),))]

    async def waiting_since(self) -> dict[str, datetime]:
        """Return when the copy was taken that each source has waited for longest."""
        rows = fetch(self._connection, "source, taken_at", _WAITING_SINCE)
        return {source: when(taken_at) for source, taken_at in rows}

    def _mark(
        self, campaign: int, ordinals: Sequence[int], outcome: Outcome, now: datetime
    ) -> list[int]:
        values = (outcome.value, micros(now), campaign, numbers(ordinals))
        return [letter for (letter,) in self._connection.execute(_MARK, values)]

    def _leave(self, campaign: int, letters: Sequence[int]) -> None:
        self._connection.execute(_GONE, (campaign, numbers(letters)))
        self._connection.execute(_GROW, (len(letters), campaign))


def brief_of(row: Row) -> Brief:
    """Return the letter in the columns seq, id, source, fingerprint, state, replays."""
    seq, id_, source, fingerprint, state, replays = row[:6]
    return Brief(seq, id_, source, fingerprint, State(state), replays)


def _item(row: Row) -> ReplayItem:
    times = [None if time is None else when(time) for time in row[7:11]]
    return item_of([*row[:7], *times, row[11]])
