"""
Sending letters back within the database: taken, sent and recorded in one transaction.

Bodies go from table to table and never pass through our hands. Whoever sends holds
the campaign's row until the end: another sender of it waits, and goes on from there.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.ids import ID_LENGTH
from deadletter.core.message import Lineage
from deadletter.core.packing import copy_of, lineage_around
from deadletter.core.replay_rules import READY, Moved, judge
from deadletter.core.seals import NO_KEY
from deadletter.core.text import shown, stored
from deadletter.ports.broker import Burial, Posted
from deadletter.ports.features import Clock
from deadletter.ports.letters import Kept

from .campaigns import PostgresqlCourse, existing
from .database import Connection, Database, Waking, limit_for, sealing_of
from .letters_keep import keeping
from .letters_rows import WHOLE
from .mailboxes import Held, PostgresqlBroker, held, hold
from .queue import TELL, Receipt, ours, putting, rounds, sending
from .replays import (
    GIVEN,
    MOVE,
    NEXT,
    NOTE,
    count_taken,
    fewer,
    freed,
    go_on,
    interrupted,
    interrupted_late,
    move_on,
    planned,
    record,
    sent,
    upcoming,
)
from .rows import octets

_GENERATIONS: Final = 16  # that copies are prepared for; others are made one by one
_GUESSED: Final = 10  # letters asked for where they go

_READY: Final = [state.value for state in READY]
_SOURCE: Final = "SELECT source FROM deadletter.letters WHERE seq = ANY($1) LIMIT 1"
# Takes and copies all that goes to one mailbox; nothing, where one of them cannot be
# copied as it is, or there is no mailbox. What somebody has changed since it was read
# has another revision by now, and is left. Tells what went, and of which other sources
# there are letters that may go.
_SEND_PLAIN: Final = f"""
WITH ready AS MATERIALIZED (
    SELECT i.letter, i.ordinal, m.fingerprint, m.state, m.replays, m.revision, l.id,
        l.source, l.size, l.message_id, c.body, c.outgoing, c.sent_at, c.expires_at,
        c.mark, c.mark_key = $13 AS has_mark,
        $8::text IS NULL OR l.source = $8 AS mine
    FROM unnest($6::bigint[], $7::int[]) AS i (letter, ordinal)
    JOIN ({WHOLE}) ON l.seq = i.letter
    WHERE m.state = ANY($9::text[]) AND m.replays < $10
), plain AS MATERIALIZED (
    SELECT $1::int IS NOT NULL AND bool_and(outgoing IS NOT NULL AND has_mark
        AND length(id) = {ID_LENGTH} AND replays < cardinality($11::bytea[])) AS are
    FROM ready WHERE mine
), going AS (
    {MOVE} FROM ready r CROSS JOIN plain
    WHERE plain.are AND r.mine AND m.letter = r.letter AND m.revision = r.revision
    RETURNING r.*
), noted AS ({NOTE} FROM going), {
    putting(
        '''SELECT convert_to(message_id, 'UTF8'), body,
            outgoing || ($11::bytea[])[replays + 1] || convert_to(id, 'UTF8')
                || ($12::bytea[])[replays + 1],
            sent_at, CASE WHEN expires_at > $4 THEN expires_at END, NULL::bigint, mark
        FROM going ORDER BY ordinal''',
        "$13",
    )
}
SELECT source, fingerprint, state, array_agg(ordinal), sum(size)::bigint,
    (SELECT {TELL} FROM box)
FROM going GROUP BY source, fingerprint, state
UNION ALL
SELECT source, NULL, NULL, array_agg(ordinal), 0, NULL
FROM ready WHERE NOT mine GROUP BY source
"""  # noqa: S608 -- made of constants
# What cannot be copied as it is comes by here, but for the body.
_COPY: Final = sending(
    """SELECT id, (SELECT body FROM deadletter.letter_contents WHERE letter = given),
        extra, sent_at, expires_at, NULL::bigint, mark
    FROM unnest($2::bytea[], $3::bigint[], $4::bytea[], $5::timestamptz[],
        $6::bigint[], $7::timestamptz[])
        AS u (id, given, extra, sent_at, mark, expires_at)""",
    "$8",
)


class PostgresqlPostman:
    """Sends letters of this database back to mailboxes of this database."""

    at_once = 5_000  # about a sixth of a second

    def __init__(self, db: Database, waking: Waking, clock: Clock) -> None:
        self._db = db
        self._waking = waking
        self._clock = clock

    async def send_back(
        self,
        campaign: str,
        *,
        limit: int,
        leave_out: frozenset[str] | None = None,
        keys: int | None = None,
    ) -> Posted:
        """Send the next letters of a running campaign, in one transaction."""
        now = self._clock.now()
        round_ = await self._db.write(
            lambda c: _Round(c, now).send(campaign, limit, leave_out, keys)
        )
        for box in round_.boxes.values():
            self._waking.ring(box)
        return Posted(round_.letters, round_.size)


class _Round:
    """One transaction's worth."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self.letters = 0
        self.size = 0
        self.boxes: dict[str, int] = {}
        self._keys: dict[int, bytes] = {}  # of their sums
        self._connection = connection
        self._now = now

    async def send(
        self, campaign: str, limit: int, leave_out: frozenset[str] | None, keys: int | None
    ) -> "_Round":
        """Send up to so many, the interrupted ones first."""
        stands = await existing(self._connection, campaign)
        if stands.state is not CampaignState.RUNNING:
            return self
        again, surely = await interrupted(self._connection, stands, limit, self._now)
        late = await interrupted_late(self._connection, stands, limit - len(again), self._now)
        again += late
        if again:
            await self._send_again(stands, again)
        waited = await freed(self._connection, stands, limit - len(again))
        if waited:
            await self._send_those(stands, waited, leave_out or ())
        left = limit - len(again) - len(waited)

        async def send_some(start: int, end: int) -> int:
            return await self._send_planned(stands, start, end, leave_out or ())

        once = leave_out is not None
        place = await go_on(stands, fewer(left, keys), send_some, once=once)
        # Of those that were planned nothing is left half done.
        surely = place if place > stands.taken else surely
        await move_on(self._connection, stands, place, surely)
        return self

    async def _send_again(self, stands: PostgresqlCourse, again: Sequence[int]) -> None:
        rows = await self._connection.fetch(GIVEN, stands.seq, again)
        await self._copy(stands, [(row, row[5]) for row in rows])
        await sent(self._connection, stands.id, (), again, self._now)

    async def _send_planned(
        self, stands: PostgresqlCourse, start: int, end: int, leave_out: Collection[str]
    ) -> int:
        before = self.letters
        plan = await planned(self._connection, stands.seq, start, end)
        await self._send_those(stands, plan, leave_out)
        return self.letters - before

    async def _send_those(
        self, stands: PostgresqlCourse, plan: Mapping[int, int], leave_out: Collection[str]
    ) -> None:
        left = plan if leave_out else await self._send_plain(stands, plan)
        if left:
            await self._send_odd(stands, left, leave_out)

    async def _send_plain(
        self, stands: PostgresqlCourse, plan: Mapping[int, int]
    ) -> dict[int, int]:
        """Send what can be copied as it is, without looking at it; the rest is told."""
        left = dict(plan)
        moved: Moved = Counter()
        letters: list[int] = []
        waiting = {await self._first_source(plan): [*plan]}
        tried = set()
        while waiting:
            source, some = waiting.popitem()
            tried.add(source)
            for row in await self._send_to(stands, source, plan, sorted(some)):
                of, fingerprint, state, ordinals, size, _ = row
                if state is None:  # they go elsewhere
                    waiting |= {} if of in tried else {of: ordinals}
                    continue
                for ordinal in ordinals:
                    del left[ordinal]
                letters += (plan[ordinal] for ordinal in ordinals)
                moved[of, fingerprint, state] += len(ordinals)
                self.size += size
        if moved:
            self.letters += moved.total()
            taken = (stands, moved, Outcome.SENT, letters)
            await count_taken(self._connection, *taken)
        return left

    async def _first_source(self, plan: Mapping[int, int]) -> str:
        """Where letters come from, as far as one can guess."""
        first = [*plan.values()][:_GUESSED]
        return await self._connection.fetchval(_SOURCE, first) or ""

    async def _send_to(
        self, stands: PostgresqlCourse, source: str, plan: Mapping[int, int], some: list[int]
    ) -> list[Any]:
        """Send some letters to one mailbox, of one source if they go home."""
        name = source if stands.to is None else stored(stands.to)
        if name not in self.boxes and (found := await hold(self._connection, name)):
            self._know(name, found)
        box = self.boxes.get(name)
        around = [
            lineage_around(stands.id, generation)
            for generation in range(1, min(stands.cap, _GENERATIONS) + 1)
        ]
        rows: list[Any] = await self._connection.fetch(
            _SEND_PLAIN,
            box,
            *(stands.seq, Outcome.SENT, self._now, self._now),
            [plan[ordinal] for ordinal in some],
            some,
            source if stands.to is None else None,
            *(_READY, stands.cap),
            *zip(*around, strict=True),
            None if box is None else self._keys[box],
        )
        return rows

    async def _send_odd(
        self, stands: PostgresqlCourse, plan: Mapping[int, int], leave_out: Collection[str]
    ) -> None:
        """Look at each: send what may go, write down why others do not."""
        rows = await upcoming(self._connection, NEXT, plan)
        going = judge([*plan], rows, stands.cap, leave_out)
        if going.rows:
            await self._copy(stands, [(row, row[5] + 1) for row in going.rows])
        await record(self._connection, stands, going, plan, Outcome.SENT, leave_out, self._now)

    async def _copy(self, stands: PostgresqlCourse, copies: Sequence[tuple[Any, int]]) -> None:
        """Put copies into their mailboxes, each with its generation."""
        by_source: defaultdict[str, list[tuple[Any, int]]] = defaultdict(list)
        for copy in copies:
            by_source["" if stands.to else copy[0][2]].append(copy)
        for source, some in sorted(by_source.items()):
            box = await self._enter(stands.to or shown(source))
            key_id = self._keys[box]
            copied = [self._copied(stands, copy, key_id) for copy in some]
            *columns, expiries = zip(*copied, strict=True)
            until = expiries if any(expiries) else ()
            await self._connection.fetch(_COPY, box, *columns, until, key_id)
            self.letters += len(some)
            self.size += sum(row[7] for row, _ in some)

    def _copied(
        self, stands: PostgresqlCourse, copy: tuple[Any, int], key_id: bytes
    ) -> tuple[Any, ...]:
        row, generation = copy
        lineage = Lineage(letter_id=shown(row[1]), generation=generation, campaign=stands.id)
        id_, sent_at, expires_at, extra = copy_of(row[8], lineage)
        if expires_at is not None and expires_at <= self._now:
            expires_at = None
        digest, mark, mark_key = row[9:12]
        marks = sealing_of(self._connection).marks(key_id)
        if marks.key_id != NO_KEY:
            mark = marks.copy(id_, digest, 0)
        elif mark_key != NO_KEY:
            mark = None  # without its body nobody knows it: it is counted only
        return octets(id_), row[0], extra, sent_at, mark, expires_at

    async def _enter(self, name: str) -> int:
        if name not in self.boxes:
            self._know(name, await held(self._connection, name))
        return self.boxes[name]

    def _know(self, name: str, found: Held) -> None:
        self.boxes[name], key_id = found
        self._keys[self.boxes[name]] = key_id


# Burying: looking whose it is and keeping its letter are one transaction.

# Held until the end: nobody takes them from us while we write.
_STILL_OURS: Final = f"""
SELECT m.seq, m.token FROM deadletter.messages m WHERE {ours("$2", "$3")} FOR SHARE
"""  # noqa: S608 -- made of constants


class PostgresqlUndertaker:
    """Keeps letters only of what is still ours."""

    def __init__(self, db: Database, broker: PostgresqlBroker, clock: Clock) -> None:
        self._db = db
        self._broker = broker
        self._clock = clock

    async def bury(self, burials: Sequence[Burial]) -> Sequence[Kept | None]:
        """Keep the letters of deliveries that are still ours, in one transaction."""
        if not burials:
            return []
        deliveries = [burial.delivery for burial in burials]
        box = await self._broker.number(deliveries[0].mailbox)
        asked = rounds(delivery.receipt for delivery in deliveries)
        everything = keeping(
            [one.letter for one in burials], self._clock.now(), self._db.group_limit
        )

        async def bury(connection: Connection) -> list[Kept | None]:
            held: set[Receipt] = set()
            for some in asked:
                given = (list(some), list(some.values()))
                held.update(
                    (seq, token) for seq, token in await connection.fetch(_STILL_OURS, box, *given)
                )
            mine = [burial for burial in burials if burial.delivery.receipt in held]
            if len(mine) == len(burials):
                return [*await everything(connection)]
            letters = [burial.letter for burial in mine]
            keep = keeping(letters, self._clock.now(), self._db.group_limit, looks=True)
            kept = iter(await keep(connection))
            return [next(kept) if burial.delivery.receipt in held else None for burial in burials]

        size = sum(len(burial.letter.message.body) for burial in burials)
        return await self._db.write(bury, within=limit_for(size))
