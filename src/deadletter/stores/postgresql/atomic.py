"""
Sending letters back within the database: taken, sent and recorded in one transaction.

Bodies go from table to table and never pass through our hands. Whoever sends holds
the campaign's row until the end: another sender of it waits, and goes on from there.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.campaign import Outcome
from deadletter.core.ids import ID_LENGTH
from deadletter.core.letter import State
from deadletter.core.message import Lineage
from deadletter.core.packing import copy_of, lineage_around
from deadletter.core.replay_rules import READY, Candidate
from deadletter.core.seals import NO_KEY
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import CampaignPosition, Shifts
from deadletter.office.transactions.replays import ReplayRequest, ReplayRound
from deadletter.ports.broker import Burial, Posted
from deadletter.ports.features import Clock
from deadletter.ports.letters import Kept

from .database import Connection, Database, Waking, limit_for, sealing_of
from .letter_operations import PostgresqlOperations, keeping
from .letters_rows import WHOLE
from .mailboxes import Held, PostgresqlBroker, held, hold
from .queue import TELL, Receipt, ours, putting, rounds, sending
from .replays import MOVE, NOTE
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


class PostgresqlAtomicReplay:
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
        request = ReplayRequest(campaign, limit, leave_out, keys)

        async def work(connection: Connection) -> _Round:
            round_ = _Round(connection, now)
            await round_.run(request)
            return round_

        round_ = await self._db.write(work)
        for box in round_.boxes.values():
            self._waking.ring(box)
        return Posted(round_.letters, round_.size)


class _Round(ReplayRound):
    """Letters copied into mailboxes of the database, in one transaction."""

    outcome = Outcome.SENT
    with_bodies = False

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._operations = PostgresqlOperations(connection)
        super().__init__(self._operations, now)
        self.letters = 0
        self.size = 0
        self.boxes: dict[str, int] = {}
        self._keys: dict[int, bytes] = {}  # of their sums
        self._connection = connection

    async def take(
        self, course: CampaignPosition, ordinals: Sequence[int], leave_out: Collection[str]
    ) -> int:
        """Send letters: those that can be copied as they are at once, then look at the others."""
        before = self.letters
        if not leave_out:
            ordinals = await self._send_plain(course, ordinals)
        if ordinals:
            await super().take(course, ordinals, leave_out)
        return self.letters - before

    async def _send_plain(self, course: CampaignPosition, ordinals: Sequence[int]) -> list[int]:
        """Send what can be copied as it is, without looking at it; return the others."""
        plan = dict(zip(ordinals, self._operations.letters_of(ordinals), strict=True))
        left = dict(plan)
        shifts: Shifts = Counter()
        waiting = {await self._first_source(plan): [*plan]}
        tried = set()
        while waiting:
            source, some = waiting.popitem()
            tried.add(source)
            for row in await self._send_to(course, source, plan, sorted(some)):
                of, fingerprint, state, going, size, _ = row
                if state is None:  # they go elsewhere
                    waiting |= {} if of in tried else {of: going}
                    continue
                for ordinal in going:
                    del left[ordinal]
                name, print_ = shown(of), shown(fingerprint)
                shifts[name, print_, State(state)] -= len(going)
                shifts[name, print_, State.REPLAYING] += len(going)
                self.size += size
        if shifts:
            letters = [letter for ordinal, letter in plan.items() if ordinal not in left]
            self.letters += len(letters)
            await self._operations.count_taken(
                shifts, {(course.seq, Outcome.PLANNED, self.outcome): letters}
            )
        return [*left]

    async def _first_source(self, plan: Mapping[int, int]) -> str:
        """Return the probable source of letters."""
        first = [*plan.values()][:_GUESSED]
        return await self._connection.fetchval(_SOURCE, first) or ""

    async def _send_to(
        self, course: CampaignPosition, source: str, plan: Mapping[int, int], some: list[int]
    ) -> list[Any]:
        """Send some letters to one mailbox, of one source if they go home."""
        name = source if course.to is None else stored(course.to)
        if name not in self.boxes and (found := await hold(self._connection, name)):
            self._know(name, found)
        box = self.boxes.get(name)
        around = [
            lineage_around(course.id, generation)
            for generation in range(1, min(course.cap, _GENERATIONS) + 1)
        ]
        rows: list[Any] = await self._connection.fetch(
            _SEND_PLAIN,
            box,
            *(course.seq, Outcome.SENT, self.now, self.now),
            [plan[ordinal] for ordinal in some],
            some,
            source if course.to is None else None,
            *(_READY, course.cap),
            *zip(*around, strict=True),
            None if box is None else self._keys[box],
        )
        return rows

    async def send(self, course: CampaignPosition, letters: Sequence[Candidate], more: int) -> None:
        """Put copies into their mailboxes, each with its generation."""
        by_name: defaultdict[str, list[Candidate]] = defaultdict(list)
        for one in letters:
            by_name[course.to or one.source].append(one)
        for name, some in sorted(by_name.items()):
            box = await self._enter(name)
            key_id = self._keys[box]
            copied = [self._copied(course, one, one.replays + more, key_id) for one in some]
            *columns, expiries = zip(*copied, strict=True)
            until = expiries if any(expiries) else ()
            await self._connection.fetch(_COPY, box, *columns, until, key_id)
            self.letters += len(some)
            self.size += sum(one.contents[0] for one in some)

    def _copied(
        self, course: CampaignPosition, one: Candidate, generation: int, key_id: bytes
    ) -> tuple[Any, ...]:
        _, rest, digest, mark, mark_key = one.contents
        lineage = Lineage(letter_id=one.id, generation=generation, campaign=course.id)
        id_, sent_at, expires_at, extra = copy_of(rest, lineage)
        if expires_at is not None and expires_at <= self.now:
            expires_at = None
        marks = sealing_of(self._connection).marks(key_id)
        if marks.key_id != NO_KEY:
            mark = marks.copy(id_, digest, 0)
        elif mark_key != NO_KEY:
            mark = None  # without its body nobody knows it: it is counted only
        return octets(id_), one.seq, extra, sent_at, mark, expires_at

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


class PostgresqlAtomicBurial:
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
