"""
Sending letters back within the database: taken, sent and recorded in one transaction.

Bodies go from table to table and never pass through our hands. Whoever sends holds
the campaign's row until the end: another sender of it waits, and goes on from there.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.escaping import shown
from deadletter.core.message import Lineage
from deadletter.core.packing import copy_of, lineage_around
from deadletter.core.replaying import Going, judge
from deadletter.ports.postman import Posted
from deadletter.ports.time import Clock

from .campaigns import Course, existing
from .database import Database
from .letters_replay import (
    GIVEN,
    NEXT,
    go_on,
    interrupted,
    move_on,
    record,
    sent,
)
from .mailboxes import held
from .pool import Connection
from .queue import sending
from .rows import octets
from .waking import Waking

# What can be copied as it is never leaves the database...
_COPY_PLAIN: Final = sending(
    """SELECT convert_to(l.message_id, 'UTF8'), c.body,
        c.outgoing || $6::bytea || convert_to(l.id, 'UTF8') || $7::bytea, c.sent_at,
        CASE WHEN c.expires_at > $8::timestamptz THEN c.expires_at END
    FROM deadletter.campaign_items i JOIN deadletter.letters l ON l.seq = i.letter
    JOIN deadletter.letter_contents c ON c.letter = i.letter
    WHERE i.campaign = $2 AND i.ordinal >= $3 AND i.ordinal < $4
        AND i.ordinal <> ALL($5::int[]) ORDER BY i.ordinal"""
)
# ...and of the others only the body does not.
_COPY: Final = sending(
    """SELECT id, (SELECT body FROM deadletter.letter_contents WHERE letter = given),
        extra, sent_at, expires_at
    FROM unnest($2::bytea[], $3::bigint[], $4::bytea[], $5::timestamptz[],
        $6::timestamptz[]) AS u (id, given, extra, sent_at, expires_at)"""
)


class PostgresqlPostman:
    """Sends letters of this database back to mailboxes of this database."""

    def __init__(self, db: Database, waking: Waking, clock: Clock) -> None:
        self._db = db
        self._waking = waking
        self._clock = clock

    async def send_back(self, campaign: str, *, limit: int) -> Posted:
        """Send the next letters of a running campaign, in one transaction."""
        now = self._clock.now()
        round_ = await self._db.write(lambda c: _Round(c, now).send(campaign, limit))
        for box in round_.boxes.values():
            self._waking.ring(box)
        return Posted(round_.letters, round_.size)


class _Round:
    """One transaction's worth."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self.letters = 0
        self.size = 0
        self.boxes: dict[str, int] = {}
        self._connection = connection
        self._now = now

    async def send(self, campaign: str, limit: int) -> "_Round":
        """Send up to so many, the interrupted ones first."""
        stands = await existing(self._connection, campaign)
        if stands.state is not CampaignState.RUNNING:
            return self
        again, surely = await interrupted(self._connection, stands, limit, self._now)
        if again:
            await self._send_again(stands, again)

        async def send_some(start: int, end: int) -> int:
            return await self._send_planned(stands, start, end)

        place = await go_on(stands, limit - len(again), send_some)
        # Of those that were planned nothing is left half done.
        surely = place if place > stands.taken else surely
        await move_on(self._connection, stands, place, surely)
        return self

    async def _send_again(self, stands: Course, again: Sequence[int]) -> None:
        rows = await self._connection.fetch(GIVEN, stands.seq, again)
        await self._copy(stands, [(row, row[5]) for row in rows])
        await sent(self._connection, stands.id, (), again, self._now)

    async def _send_planned(self, stands: Course, start: int, end: int) -> int:
        rows = await self._connection.fetch(NEXT, stands.seq, start, end)
        going = judge(start, end, rows, stands.cap)
        generations = {row[5] + 1 for row in going.rows}
        if len(generations) == 1 and all(row[8] for row in going.rows):
            await self._copy_plain(stands, going, *generations)
        elif going.rows:
            ordinals = [row[6] for row in going.rows]
            whole = await self._connection.fetch(GIVEN, stands.seq, ordinals)
            await self._copy(stands, [(row, row[5] + 1) for row in whole])
        await record(self._connection, stands, going, Outcome.SENT, self._now)
        return len(going.rows)

    async def _copy_plain(self, stands: Course, going: Going, generation: int) -> None:
        """Put copies into their mailboxes, without looking at them."""
        by_source: defaultdict[str, list[Any]] = defaultdict(list)
        for row in going.rows:
            by_source["" if stands.to else row[2]].append(row)
        around = lineage_around(stands.id, generation)
        span = (stands.seq, going.start, going.end)
        for source, rows in sorted(by_source.items()):
            box = await self._enter(stands.to or shown(source))
            mine = {row[6] for row in rows}
            others = [n for n in range(going.start, going.end) if n not in mine]
            await self._connection.fetch(
                _COPY_PLAIN, box, *span, others, *around, self._now
            )
            self.letters += len(rows)
            self.size += sum([row[7] for row in rows])

    async def _copy(self, stands: Course, copies: Sequence[tuple[Any, int]]) -> None:
        """Put copies into their mailboxes, each with its generation."""
        by_source: defaultdict[str, list[tuple[Any, int]]] = defaultdict(list)
        for copy in copies:
            by_source["" if stands.to else copy[0][2]].append(copy)
        for source, some in sorted(by_source.items()):
            box = await self._enter(stands.to or shown(source))
            copied = [self._copied(stands, row, generation) for row, generation in some]
            *columns, expiries = zip(*copied, strict=True)
            until = expiries if any(expiries) else ()
            await self._connection.fetch(_COPY, box, *columns, until)
            self.letters += len(some)
            self.size += sum(row[7] for row, _ in some)

    def _copied(self, stands: Course, row: Any, generation: int) -> tuple[Any, ...]:
        lineage = Lineage(
            letter_id=shown(row[1]), generation=generation, campaign=stands.id
        )
        id_, sent_at, expires_at, extra = copy_of(row[8], lineage)
        if expires_at is not None and expires_at <= self._now:
            expires_at = None
        return octets(id_), row[0], extra, sent_at, expires_at

    async def _enter(self, name: str) -> int:
        if name not in self.boxes:
            self.boxes[name] = await held(self._connection, name)
        return self.boxes[name]
