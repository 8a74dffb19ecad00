"""Letters of a campaign: claimed bit by bit, sent, settled; what campaigns did with a letter."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.campaign import Outcome, ReplayItem, item_of
from deadletter.core.letter import State
from deadletter.core.message import Message
from deadletter.core.packing import unpack_message
from deadletter.core.replay_rules import Candidate, Going, Interrupted
from deadletter.core.seals import ItemMoves
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import Brief, CampaignPosition, ReplayedCopy, Shifts
from deadletter.ports.letters import KeyProgress, ReplayItems, ReplayNext

from .audit import OPENED, STATES, counted, opened
from .campaigns import CampaignOperations, check_counted, counting
from .letters_rows import JOINED, WHOLE, check_body, columns
from .rows import legible

BRIEF: Final = "l.seq, l.id, l.source, m.fingerprint, m.state, m.replays"
"""The columns `brief_of` reads, in its order."""

# The next letters.

_SENDING: Final = """
SELECT i.ordinal, i.letter, i.generation, m.state, m.replays
FROM deadletter.campaign_items i
LEFT JOIN deadletter.letter_marks m ON m.letter = i.letter
WHERE i.campaign = $1 AND i.outcome = 'sending' AND i.ordinal >= $2 AND i.ordinal < $3
ORDER BY i.ordinal LIMIT $4
"""
_PLANNED: Final = """
SELECT letters[greatest($2 - first, 0) + 1 : least($3, until) - first]
FROM deadletter.campaign_plans
WHERE campaign = $1 AND until > $2 AND first < $3 ORDER BY until
"""
_LOCK: Final = """
SELECT FROM deadletter.letter_marks WHERE letter = ANY($1) ORDER BY letter FOR UPDATE
"""
_CANDIDATES: Final = f"""
SELECT {BRIEF}, i.ordinal, {{contents}}
FROM unnest($1::bigint[], $2::int[]) AS i (letter, ordinal)
JOIN ({WHOLE}) ON l.seq = i.letter ORDER BY i.ordinal
"""  # noqa: S608 -- made of constants
_MESSAGES: Final = _CANDIDATES.format(contents="c.digest, c.rest, c.body")
# Without bodies, for those who do not need to see them.
_COPIED: Final = _CANDIDATES.format(contents="l.size, c.rest, c.digest, c.mark, c.mark_key")
MOVE: Final = """
UPDATE deadletter.letter_marks m
SET state = 'replaying', replays = m.replays + 1, revision = m.revision + 1
"""
NOTE: Final = """
INSERT INTO deadletter.campaign_items
    (campaign, outcome, taken_at, sent_at, ordinal, letter, generation)
SELECT $2, $3, $4, $5, ordinal, letter, replays + 1
"""
"""Notes those taken: their ordinal, letter, and how often they went before."""

_TAKE: Final = f"""
WITH moved AS ({MOVE} WHERE letter = ANY($1))
{NOTE} FROM unnest($1::bigint[], $6::int[], $7::bigint[])
    AS g (letter, ordinal, replays)
"""
_COUNT_TAKEN: Final = f"""
WITH {OPENED}, {STATES} {counting(9)}
"""
_END: Final = """
INSERT INTO deadletter.campaign_items (campaign, outcome, settled_at, ordinal, letter)
SELECT $1, $2, $3, * FROM unnest($4::int[], $5::bigint[])
"""
_MOVE_ON: Final = """
WITH taken AS (
    DELETE FROM deadletter.campaign_plans WHERE campaign = $1 AND until <= $2
)
UPDATE deadletter.campaigns SET taken = $2, surely = $3, late = $4 WHERE seq = $1
"""
_SENT: Final = """
WITH course AS MATERIALIZED (
    SELECT seq FROM deadletter.campaigns WHERE id = $1
), sent AS (
    UPDATE deadletter.campaign_items SET outcome = 'sent', sent_at = $2
    WHERE outcome = 'sending' AND {which} RETURNING letter
)
SELECT seq, ARRAY(SELECT letter FROM sent) FROM course
"""
# The plus keeps the index of whole campaigns out of it.
_SENT_LETTERS: Final = _SENT.format(
    which="""campaign + 0 = (SELECT seq FROM course) AND letter = ANY(ARRAY(
        SELECT seq FROM deadletter.letters WHERE id = ANY($3)))"""
)
_SENT_ITEMS: Final = _SENT.format(which="campaign = (SELECT seq FROM course) AND ordinal = ANY($3)")
_READY_NEXT: Final = """
SELECT letter FROM deadletter.campaign_waiting WHERE campaign = $1 AND ready
ORDER BY place LIMIT $2
"""
_UPCOMING: Final = f"""
SELECT l.id, l.source, coalesce(nullif(l.business_key, ''), l.message_id), m.replays
FROM unnest($1::bigint[], $2::int[]) AS i (letter, ordinal)
JOIN ({JOINED}) ON l.seq = i.letter ORDER BY i.ordinal
"""  # noqa: S608 -- made of constants

# Their outcomes.

_COPIES: Final = f"""
WITH l AS MATERIALIZED (
    SELECT seq, id, source FROM deadletter.letters WHERE id = ANY($1))
SELECT {BRIEF}, i.generation, i.campaign, i.ordinal, i.outcome, c.cap,
    c.keyed
FROM l JOIN deadletter.letter_marks m ON m.letter = l.seq
JOIN deadletter.campaign_items i ON i.letter = l.seq
JOIN deadletter.campaigns c ON c.seq = i.campaign
WHERE m.letter = ANY(ARRAY(SELECT seq FROM l))
AND i.letter = ANY(ARRAY(SELECT seq FROM l))
AND i.outcome IN ('sending', 'sent', 'unconfirmed', 'presumed', 'confirmed')
ORDER BY l.id FOR UPDATE OF m, i
"""  # noqa: S608 -- made of constants
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

# Letters that wait for others of their key.

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

# What became of them, to be read.

_ITEM: Final = """
l.id, g.id, g.actor, g.reason, g.mailbox, i.generation, i.outcome, i.taken_at,
i.sent_at, i.settled_at, i.confirmed_at, i.why
"""
_NO_ITEM: Final = """
l.id, g.id, g.actor, g.reason, g.mailbox, 0, '{}', NULL, NULL, NULL, NULL, ''
"""
_PLAN: Final = _NO_ITEM.format(Outcome.PLANNED)
_WAITING: Final = _NO_ITEM.format(Outcome.WAITING)
_WANTED: Final = """
unnest($1::text[]) WITH ORDINALITY AS w (id, place)
JOIN deadletter.letters l ON l.id = w.id
"""
_OF_LETTERS: Final = f"""
SELECT {_ITEM}, w.place, g.seq FROM {_WANTED}
JOIN deadletter.campaign_items i ON i.letter = l.seq
JOIN deadletter.campaigns g ON g.seq = i.campaign
UNION ALL
SELECT {_PLAN}, w.place, g.seq FROM {_WANTED}
JOIN deadletter.campaign_plans p ON p.reach @> l.seq
JOIN deadletter.campaigns g ON g.seq = p.campaign
WHERE p.first + array_position(p.letters, l.seq) - 1 >= g.taken
UNION ALL
SELECT {_WAITING}, w.place, g.seq FROM {_WANTED}
JOIN deadletter.campaign_waiting q ON q.letter = l.seq
JOIN deadletter.campaigns g ON g.seq = q.campaign
ORDER BY place, seq
"""  # noqa: S608 -- made of constants
_HOW_MANY_WAIT: Final = "SELECT count(*) FROM deadletter.campaign_waiting WHERE campaign = $1"
_STILL_WAITING: Final = f"""
SELECT {_WAITING} FROM deadletter.campaigns g
JOIN deadletter.campaign_waiting w ON w.campaign = g.seq
JOIN deadletter.letters l ON l.seq = w.letter
WHERE g.seq = $1 ORDER BY w.place LIMIT $2 OFFSET $3
"""  # noqa: S608 -- made of constants
_OF_CAMPAIGN: Final = f"""
SELECT {_ITEM}, i.ordinal FROM deadletter.campaigns g
JOIN deadletter.campaign_items i ON i.campaign = g.seq
JOIN deadletter.letters l ON l.seq = i.letter
WHERE g.seq = $1 AND i.ordinal >= $2 AND i.ordinal < $3
UNION ALL
SELECT {_PLAN}, p.first + w.place - 1 FROM deadletter.campaigns g
JOIN deadletter.campaign_plans p ON p.campaign = g.seq
CROSS JOIN unnest(p.letters) WITH ORDINALITY AS w (letter, place)
JOIN deadletter.letters l ON l.seq = w.letter
WHERE g.seq = $1 AND p.until > $2 AND p.first < $3
    AND p.first + w.place - 1 >= greatest($2, g.taken) AND p.first + w.place - 1 < $3
ORDER BY ordinal
"""  # noqa: S608 -- made of constants
_WITH_OUTCOME: Final = f"""
SELECT * FROM ({_OF_CAMPAIGN}) AS t WHERE outcome = ANY($4) ORDER BY ordinal LIMIT $5
"""  # noqa: S608 -- made of constants
_WAITING_SINCE: Final = """
SELECT l.source, min(i.taken_at) FROM deadletter.letter_marks m
JOIN deadletter.letters l ON l.seq = m.letter
JOIN deadletter.campaign_items i ON i.letter = m.letter AND i.generation = m.replays
WHERE m.state = 'replaying' GROUP BY l.source
"""


class ReplayOperations(CampaignOperations):
    """Operations on the letters of campaigns."""

    async def find_sending(
        self, course: CampaignPosition, behind: int, limit: int
    ) -> list[Interrupted]:
        """Return items that are `sending`, by ordinal, from the one behind `behind` on."""
        surely, late = self._done[course.seq]
        found: list[Any] = []
        # Those that had waited for their key have later ordinals than all others.
        for first, end in ((surely, course.taken), (late, course.items)):
            start = max(first, behind + 1)
            if start < end and len(found) < limit:
                asked = (course.seq, start, end, limit - len(found))
                found += await self._connection.fetch(_SENDING, *asked)
        self._letters |= {row[0]: row[1] for row in found}
        return [
            Interrupted(ordinal, letter, generation, state and State(state), replays)
            for ordinal, letter, generation, state, replays in found
        ]

    async def find_plan(self, course: CampaignPosition, place: int, limit: int) -> Sequence[int]:
        """Return the ordinals of the next planned items, from `place` on."""
        end = min(place + limit, course.free)
        if place >= end:
            return ()
        rows = await self._connection.fetch(_PLANNED, course.seq, place, end)
        plan = dict(enumerate((letter for (some,) in rows for letter in some), place))
        self._letters |= plan
        return [*plan]

    async def free_items(self, course: CampaignPosition, limit: int) -> Sequence[int]:
        """Plan letters whose turn by key has come, counted; return their ordinals."""
        rows = await self._connection.fetch(_READY, course.seq, limit)
        if not rows:
            return ()
        letters = [letter for (letter,) in rows]
        ordinals = await self._grow(course.seq, len(letters))
        await self.count_items({(course.seq, Outcome.WAITING, Outcome.PLANNED): letters})
        self._letters |= zip(ordinals, letters, strict=True)
        return ordinals

    async def find_candidates(
        self, course: CampaignPosition, ordinals: Sequence[int], *, bodies: bool
    ) -> list[Candidate]:
        """Return the letters of items, locked, in order; purged ones are missing."""
        letters = self.letters_of(ordinals)
        # By itself, so that all that is read afterwards is what was locked.
        await self._connection.execute(_LOCK, letters)
        select = _MESSAGES if bodies else _COPIED
        rows = await self._connection.fetch(select, letters, ordinals)
        return [Candidate(*(*legible(row[:7]), row[7:])) for row in rows]

    def letters_of(self, ordinals: Sequence[int]) -> list[int]:
        """Return the numbers of the letters of items that were found."""
        return [self._letters[ordinal] for ordinal in ordinals]

    async def find_messages(
        self, course: CampaignPosition, letters: Sequence[Candidate]
    ) -> list[Message]:
        """Return the messages of letters that were found with `bodies`."""
        self._places |= {(course.id, one.id): one.ordinal for one in letters}
        messages = []
        for one in letters:
            digest, rest, body = one.contents
            check_body(one.id, body, digest)
            messages.append(unpack_message(rest, body))
        return messages

    async def take_items(
        self, course: CampaignPosition, going: Going, outcome: Outcome, now: datetime
    ) -> None:
        """Write that letters are out, with their next generation."""
        sent_at = now if outcome is Outcome.SENT else None
        taken = [(one.seq, one.ordinal, one.replays) for one in going.letters]
        letters, ordinals, replays = zip(*taken, strict=True)
        noted = (course.seq, outcome, now, sent_at)
        await self._connection.execute(_TAKE, letters, *noted, ordinals, replays)

    async def count_taken(self, shifts: Shifts, moves: ItemMoves) -> None:
        """Change the number of letters by state, and of items by outcome."""
        states, by_open = counted(shifts)
        changed = await self._changes(moves)
        values = (*states, *opened(by_open), *changed)
        check_counted(await self._connection.execute(_COUNT_TAKEN, *values), changed)

    async def skip_items(
        self, course: CampaignPosition, ordinals: Sequence[int], before: Outcome, now: datetime
    ) -> list[int]:
        """Write that items are skipped; return the numbers of their letters."""
        letters = self.letters_of(ordinals)
        if before is Outcome.PLANNED:
            values = (course.seq, Outcome.SKIPPED, now, ordinals, letters)
            await self._connection.execute(_END, *values)
        else:
            await self.settle_items(course.seq, ordinals, Outcome.SKIPPED, now)
        return letters

    async def advance(self, course: CampaignPosition, taken: int, sending: Sequence[int]) -> None:
        """Write how far a campaign has come, and end it if nothing is left to wait for."""
        before = self._done[course.seq]
        main = [ordinal for ordinal in sending if ordinal < course.free]
        waited = [ordinal for ordinal in sending if ordinal >= course.free]
        late = min(waited, default=before[1] if main else course.items)
        done = min(main, default=taken), late
        if (taken, done) != (course.taken, before):
            await self._connection.execute(_MOVE_ON, course.seq, taken, *done)
        if taken == course.free:
            await self.finish_campaigns([course.seq])

    async def mark_sent(
        self, campaign: str, ids: Sequence[str], now: datetime
    ) -> tuple[int, list[int]] | None:
        """Write that the broker has copies; return the numbers of campaign and letters."""
        places = {id_: self._places.pop((campaign, id_), None) for id_ in ids}
        ordinals = [place for place in places.values() if place is not None]
        others = [stored(id_) for id_, place in places.items() if place is None]
        statements = {_SENT_ITEMS: ordinals, _SENT_LETTERS: others}
        sent: list[int] = []
        for statement, wanted in statements.items():
            if not wanted and any(statements.values()):
                continue
            row = await self._connection.fetchrow(statement, stored(campaign), now, wanted)
            if row is None:
                return None
            seq, letters = row
            sent += letters
        return seq, sent

    async def find_copies(self, copies: Collection[tuple[str, int]]) -> list[ReplayedCopy]:
        """Return the copies of these letters that news can change, locked."""
        wanted = list({stored(id_) for id_, _ in copies})
        found = []
        for row in await self._connection.fetch(_COPIES, wanted):
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
        await self._connection.execute(_MARK, outcome, now, campaign, ordinals)

    async def explain_items(self, reasons: Sequence[tuple[str, int, int]]) -> None:
        """Write why items were refused: text, campaign and ordinal of each."""
        rows = [(stored(reason), *item) for reason, *item in reasons]
        await self._connection.execute(_EXPLAIN, *columns(rows, 3))

    async def free_waiting(self, campaign: int, letters: Sequence[int]) -> None:
        """Let letters go that wait for these letters by their key."""
        if letters:
            await self._connection.execute(_FREE, campaign, letters)

    async def hold_waiting(self, campaign: int, letters: Sequence[int], now: datetime) -> None:
        """Hold all letters back that wait behind these letters by their key."""
        rows = await self._connection.fetch(_BEHIND, campaign, letters) if letters else []
        if not rows:
            return
        behind = [letter for (letter,) in rows]
        ordinals = await self._grow(campaign, len(behind))
        await self._connection.execute(_END, campaign, Outcome.HELD, now, ordinals, behind)
        await self.count_items({(campaign, Outcome.WAITING, Outcome.HELD): behind})

    async def find_next(self, course: CampaignPosition, limit: int) -> list[ReplayNext]:
        """Return the next letters of a campaign, those whose turn by key has come first."""
        ready: Sequence[Any] = ()
        if course.keyed:
            ready = await self._connection.fetch(_READY_NEXT, course.seq, limit)
        plan = await self.find_plan(course, course.taken, limit - len(ready))
        letters = [*(letter for (letter,) in ready), *self.letters_of(plan)]
        rows = await self._connection.fetch(_UPCOMING, letters, [*range(len(letters))])
        return [ReplayNext(*legible(row)) for row in rows]

    async def find_progress(self, course: CampaignPosition, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""
        behind = await self._connection.fetchval(_STARTED, course.seq)
        plan = await self.find_plan(course, course.taken, limit)
        sizes = await self._connection.fetch(_SIZES, course.seq, self.letters_of(plan))
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
            return await self._with_outcomes(course, after, limit, outcomes)
        end, size = after + limit, course.items
        rows = await self._connection.fetch(_OF_CAMPAIGN, course.seq, after, end)
        if course.keyed:
            # Those that wait stand behind all that have items, in the order they go.
            some = (course.seq, max(0, end - max(after, size)), max(0, after - size))
            rows += await self._connection.fetch(_STILL_WAITING, *some)
            size += await self._connection.fetchval(_HOW_MANY_WAIT, course.seq)
        items = tuple(item_of(legible(row[:12])) for row in rows)
        return ReplayItems(items, end if end < size else None)

    async def _with_outcomes(
        self, course: CampaignPosition, after: int, limit: int, outcomes: frozenset[Outcome]
    ) -> ReplayItems:
        wanted = [outcome.value for outcome in outcomes]
        asked = (course.seq, after, course.items, wanted, limit + 1)
        rows = [legible(row) for row in await self._connection.fetch(_WITH_OUTCOME, *asked)]
        if len(rows) > limit:
            return ReplayItems(tuple(item_of(row[:12]) for row in rows[:limit]), rows[limit][12])
        items = tuple(item_of(row[:12]) for row in rows)
        if Outcome.WAITING not in outcomes or not course.keyed:
            return ReplayItems(items)
        skipped, size = max(0, after - course.items), limit - len(rows)
        found = await self._connection.fetch(_STILL_WAITING, course.seq, size + 1, skipped)
        waiting = tuple(item_of(legible(row[:12])) for row in found[:size])
        more = course.items + skipped + size if len(found) > size else None
        return ReplayItems(items + waiting, more)

    async def find_replays(self, ids: Sequence[str]) -> list[ReplayItem]:
        """Return every part that letters had in campaigns, each letter's first to last."""
        wanted = [stored(id_) for id_ in dict.fromkeys(ids)]
        rows = await self._connection.fetch(_OF_LETTERS, wanted)
        return [item_of(legible(row[:12])) for row in rows]

    async def waiting_since(self) -> dict[str, datetime]:
        """Return when the copy was taken that each source has waited for longest."""
        return {shown(name): at for name, at in await self._connection.fetch(_WAITING_SINCE)}

    async def _grow(self, campaign: int, n: int) -> list[int]:
        """Make room for items; return their ordinals."""
        end = await self._connection.fetchval(_GROW, campaign, n)
        return [*range(end - n, end)]


def brief_of(row: Sequence[Any]) -> Brief:
    """Return the letter in the columns of `BRIEF`."""
    seq, id_, source, fingerprint, state, replays = row[:6]
    return Brief(seq, shown(id_), shown(source), shown(fingerprint), State(state), replays)
