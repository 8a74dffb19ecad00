"""One mailbox: messages in, deliveries out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeAlias

from deadletter.core.errors import DeadLetterError
from deadletter.core.message import Delivery, Message
from deadletter.core.seals import MASK, NO_KEY, Marks, weight
from deadletter.ports.broker import Acked, Fate, Released, Settlement
from deadletter.ports.features import Features

from .database import LONGEST, Connection, Database, Rows, Waking, limit_for
from .rows import CLAIMED, deliveries, octets
from .rows import columns_of as rows_columns_of

# Giving deliveries up: a batch is one statement, whatever is in it.

Receipt: TypeAlias = tuple[int, int]  # seq, token

_SHARDS: Final = 16


def ours(seqs: str, tokens: str) -> str:
    """
    Return the condition for deliveries of ours: our token, and a lease that still runs.

    Messages are found by number and looked up in the lists handed in, which no plan
    can turn into a search of anything larger. The rest is said in one piece, since
    the planner would make the wrong guesses by it. No number comes twice.
    """
    return f"""
        m.seq = ANY({seqs}::bigint[]) AND CASE
            WHEN m.mailbox = $1 AND m.leased > deadletter.clock() THEN m.token ELSE 0
        END = ({tokens}::bigint[])[array_position({seqs}::bigint[], m.seq)]
    """


_WEIGHTS: Final = " ".join(f"WHEN '{fate}' THEN {weight(fate)}" for fate in ("sent", *Fate))
_SHARD: Final = f"pg_backend_pid() % {_SHARDS}"
_SHARD_OF_TRANSACTION: Final = "-pg_current_xact_id()::text::bigint"
_ADD_UP: Final = f"""
ON CONFLICT (mailbox, fate, shard) DO UPDATE
SET n = t.n + excluded.n, marks = (t.marks + excluded.marks) & {MASK}
"""


def _counting(shard: str) -> str:
    return f"""
INSERT INTO deadletter.tally AS t (mailbox, fate, shard, n, marks)
SELECT $1, fate, {shard}, count(*),
    ((coalesce(sum(mark), 0) + count(*) * CASE fate {_WEIGHTS} END)
        % {MASK + 1})::bigint
FROM gone GROUP BY fate ORDER BY fate
{_ADD_UP}
"""  # noqa: S608 -- made of constants


COUNT: Final = _counting(_SHARD)
"""Notes how many messages left, of a list `gone`, how, and the sum of their marks."""

FOLD: Final = f"""
WITH single AS (
    DELETE FROM deadletter.tally WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM deadletter.tally WHERE shard < 0 LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING mailbox, fate, n, marks)
INSERT INTO deadletter.tally AS t (mailbox, fate, shard, n, marks)
SELECT mailbox, fate, {_SHARD}, sum(n), (sum(marks) % {MASK + 1})::bigint
FROM single GROUP BY mailbox, fate ORDER BY mailbox, fate
{_ADD_UP}
"""  # noqa: S608 -- made of constants
"""Adds rows of single transactions to the rows that all share, up to $1 of them."""

_WEIGHED: Final = f"n::numeric * CASE fate {_WEIGHTS} END % {MASK + 1}"
BEGIN_SUMS: Final = f"""
UPDATE deadletter.tally SET marks = ({_WEIGHED})::bigint WHERE mailbox = $1
"""  # noqa: S608 -- made of constants
"""Makes sums of a mailbox that hold no message."""

KEY: Final = "(SELECT marks_key FROM deadletter.mailboxes WHERE id = $1)"
# Nothing is done where the sums are made with another key than the marks in $11, which
# is $12: the answer tells which one it is.
SETTLE: Final = f"""
WITH gone AS (
    DELETE FROM deadletter.messages m WHERE {ours("$2", "$3")} AND {KEY} = $12
    RETURNING m.seq, m.token,
        ($4::text[])[array_position($2::bigint[], m.seq)] AS fate,
        CASE WHEN m.mark IS NOT NULL
            THEN ($11::bigint[])[array_position($2::bigint[], m.seq)] END AS mark
), counted AS ({COUNT}), freed AS (
    UPDATE deadletter.messages m
    SET token = NULL, leased = NULL, alone = false,
        (due, span, history, spared, suspect) = (
            SELECT least(deadletter.clock() + ($7::interval[])[at], m.expires_at),
                ($7::interval[])[at], coalesce(($8::bytea[])[at], m.history),
                m.spared + ($9::int[])[at],
                m.suspect AND ($10::bool[])[at]
            FROM array_position($5::bigint[], m.seq) AS at)
    WHERE {ours("$5", "$6")} AND {KEY} = $12 RETURNING m.seq
), settled AS (SELECT seq FROM gone UNION ALL SELECT seq FROM freed)
SELECT array_agg(seq),
    (SELECT pg_notify('deadletter', $1::text) FROM freed LIMIT 1), {KEY}
FROM settled
"""  # noqa: S608 -- made of constants
EXTEND: Final = f"""
UPDATE deadletter.messages m SET leased = deadletter.clock() + $4, span = $4
WHERE {ours("$2", "$3")} RETURNING m.seq
"""  # noqa: S608 -- made of constants


def rounds(receipts: Iterable[Receipt]) -> list[dict[int, int]]:
    """
    Tokens by number, each receipt once.

    One message under two tokens, of which one at most is still good, takes a second
    round.
    """
    found: list[dict[int, int]] = [{}]
    for seq, token in dict.fromkeys(receipts):
        place = next((some for some in found if seq not in some), None)
        if place is None:
            place = {}
            found.append(place)
        place[seq] = token
    return found


def columns_of(settlements: Sequence[Settlement], marks: Marks) -> tuple[Sequence[Any], ...]:
    """Settlements as `SETTLE` takes them."""
    acked = [s for s in settlements if isinstance(s, Acked)]
    released = [s for s in settlements if isinstance(s, Released)]
    return (
        [s.delivery.receipt[0] for s in acked],
        [s.delivery.receipt[1] for s in acked],
        [s.fate for s in acked],
        [s.delivery.receipt[0] for s in released],
        [s.delivery.receipt[1] for s in released],
        [span(s.delay) for s in released],
        [None if s.history is None else octets(s.history) for s in released],
        [0 if s.charged else 1 for s in released],
        # Its handler has run and its worker lives: it is proven. What comes back
        # unrun, and so uncharged and without a story, is not.
        [not s.charged and s.history is None for s in released],
        [marks.message(s.delivery.message.id, s.delivery.message.body) for s in acked],
    )


def span(seconds: float) -> timedelta:
    """A duration as it is stored; never a negative one."""
    return timedelta(seconds=max(0.0, seconds))


_AT_ONCE: Final = 16_000_000  # bytes in one statement; one message may have more
_BREATH: Final = 0.01  # seconds, when what is due is in somebody else's hands


TELL: Final = "pg_notify('deadletter', $1::text)"
"""Tells all processes that there is something in mailbox $1."""


def putting(rows: str, key: str, wait: str = "interval '0'", *, borrowed: bool = False) -> str:
    """
    Lists that put messages into a mailbox, of which it is $1.

    `rows` selects their id, body, extra, sent_at, expires_at, checksum and mark; `wait`
    is how long they are held back. `key` is that of the marks. The mailbox may have
    been deleted since we learned its number, or its sums are made with another key by
    now: then nothing is sent, and `box` is empty.

    In a `borrowed` transaction, which may take long, the mailbox stays as it is until the
    end, and the count has a row of its own: nobody waits for it, and it fails for nobody.
    """
    hold, count = (" FOR SHARE", _counting(_SHARD_OF_TRANSACTION)) if borrowed else ("", COUNT)
    return f"""
box AS (
    SELECT deadletter.clock() + make_interval(secs => expire_after) AS expiry
    FROM deadletter.mailboxes WHERE id = $1 AND NOT gone AND marks_key = {key}{hold}
), put AS (
    INSERT INTO deadletter.messages
        (mailbox, id, body, extra, sent_at, expires_at, crc, mark, due, span)
    SELECT $1, g.id, g.body, g.extra, g.sent_at, coalesce(g.expires_at, box.expiry),
        g.crc, g.mark,
        least(deadletter.clock() + {wait}, g.expires_at, box.expiry), {wait}
    FROM box CROSS JOIN ({rows}) AS g
        (id, body, extra, sent_at, expires_at, crc, mark)
    RETURNING 'sent' AS fate, mark
), gone AS (SELECT fate, mark FROM put), counted AS ({count})
"""  # noqa: S608 -- made of constants


def sending(rows: str, key: str, wait: str = "interval '0'", *, borrowed: bool = False) -> str:
    """Puts messages into mailbox $1; the answer is empty if it is not as we know it."""
    lists = putting(rows, key, wait, borrowed=borrowed)
    return f"WITH {lists} SELECT {TELL} FROM box"  # noqa: S608 -- made of constants


_GIVEN: Final = (
    """SELECT * FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::timestamptz[],
        $6::timestamptz[], $7::bigint[], $8::bigint[])""",
    "$10",
    "$9::interval",
)
_SEND: Final = sending(*_GIVEN)
SEND_BORROWED: Final = sending(*_GIVEN, borrowed=True)
"""Sends within a transaction of the application."""
_CLAIM: Final = f"""
WITH claim AS MATERIALIZED (SELECT nextval('deadletter.tokens') AS token),
next AS MATERIALIZED (
    SELECT seq FROM deadletter.messages
    WHERE mailbox = $1 AND token IS NULL AND suspect = $4 AND due <= deadletter.clock()
    ORDER BY due, seq LIMIT $2 FOR UPDATE SKIP LOCKED)
UPDATE deadletter.messages m
SET token = (SELECT token FROM claim), leased = deadletter.clock() + $3, span = $3,
    attempts = m.attempts + 1, alone = $4,
    first_at = coalesce(m.first_at, deadletter.clock())
WHERE m.seq = ANY(ARRAY(SELECT seq FROM next))
RETURNING {CLAIMED}
"""  # noqa: S608 -- made of constants
_UNDO: Final = """
UPDATE deadletter.messages m
SET token = NULL, leased = NULL, span = '0', alone = false, attempts = attempts - 1,
    first_at = CASE WHEN attempts > 1 THEN first_at END
WHERE m.seq = ANY($1) AND m.token = $2
RETURNING pg_notify('deadletter', m.mailbox::text)
"""
_NEXT_DUE: Final = """
SELECT due - deadletter.clock() FROM deadletter.messages
WHERE mailbox = $1 AND token IS NULL AND suspect = $2 ORDER BY due, seq LIMIT 1
"""


class Mailbox:
    """The row of one mailbox, created when first needed; source and sink share it."""

    def __init__(
        self,
        db: Database,
        name: str,
        *,
        waking: Waking,
        make: Callable[[str], Awaitable[tuple[int, bytes]]],
    ) -> None:
        self.db = db
        self.name = name
        self.waking = waking
        self._make = make
        self._id: int | None = None
        self.key_id = NO_KEY  # of the key its sums are made with, once its id is known

    async def id(self) -> int:
        """The number of its row, which stays for ever."""
        if self._id is None:
            self._id, self.key_id = await self._make(self.name)
        return self._id

    @property
    def marks(self) -> Marks:
        """Return the keys of the sums of this mailbox."""
        return self.db.sealing.marks(self.key_id)

    def parts_of(self, messages: Sequence[Message], delay: float) -> list[tuple[Any, ...]]:
        """Return the values of the statements that send messages; its id must be known."""
        marks, wait = self.marks, span(delay)
        return [(*rows_columns_of(some, marks), wait, self.key_id) for some in _in_parts(messages)]

    def forget(self) -> None:
        """Forget a deleted mailbox; its next use creates it again."""
        self._id = None


class PostgresqlSink:
    """The way into one mailbox."""

    def __init__(self, box: Mailbox) -> None:
        self.mailbox = box.name
        self._box = box

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all or none, returning once the server has them durably."""
        if not messages:
            return
        while not await self._sent(await self._box.id(), self._box.parts_of(messages, delay)):
            self._box.forget()
        self._box.waking.ring(await self._box.id())

    async def _sent(self, box: int, parts: Sequence[tuple[Any, ...]]) -> bool:
        within = limit_for(sum(len(body) for part in parts for body in part[1]))
        if len(parts) == 1:
            sent = await self._box.db.fetch(_SEND, box, *parts[0], within=within)
            return bool(sent)

        async def send(connection: Connection) -> bool:
            answers = [await connection.fetch(_SEND, box, *part) for part in parts]
            return all(answers)

        return await self._box.db.write(send, within=within)


class PostgresqlSource:
    """Deliveries of one mailbox."""

    def __init__(self, box: Mailbox, features: Features) -> None:
        self.mailbox = box.name
        self.features = features
        self._box = box
        self._late = 0  # claims that were not answered in time, one after another

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        if limit < 1:
            return []
        box = await self._box.id()
        limit = 1 if alone else limit
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        found = await self._claim(box, limit, lease, alone=alone)
        if found or wait <= 0:
            return found
        with self._box.waking.bell(box) as bell:
            while True:
                bell.clear()
                found = await self._claim(box, limit, lease, alone=alone)
                left = deadline - loop.time()
                if found or left <= 0:
                    return found
                pause = await self._pause(box, alone=alone)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, pause)):
                        await bell.wait()

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Forget or hand back, in one statement; says for each if it was ours."""
        if not settlements:
            return []
        box = await self._box.id()
        places: dict[Receipt, int] = {}  # of one named twice, only the first
        for place, settlement in enumerate(settlements):
            places.setdefault(settlement.delivery.receipt, place)
        ours: set[Receipt] = set()
        for some in rounds(places):
            asked = [settlements[places[receipt]] for receipt in some.items()]
            seqs, told = await self._settled(box, asked)
            if told is not None:
                self._box.waking.ring(box)
            if seqs is not None and len(seqs) == len(settlements):
                return [True] * len(seqs)
            ours.update((seq, some[seq]) for seq in seqs or ())
        return [
            settlement.delivery.receipt in ours and places[settlement.delivery.receipt] == place
            for place, settlement in enumerate(settlements)
        ]

    async def _settled(
        self, box: int, settlements: Sequence[Settlement]
    ) -> tuple[Sequence[int] | None, Any]:
        """Settle these; the numbers of those that were ours, and if any was freed."""
        while True:
            key = self._box.key_id
            columns = columns_of(settlements, self._box.marks)
            answer = await self._box.db.fetch(SETTLE, box, *columns, key)
            seqs, told, real = answer[0]
            if real == key:
                return seqs, told
            self._box.key_id = real

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Keep deliveries ours for `lease` seconds from now; says which still are."""
        if not deliveries:
            return []
        box = await self._box.id()
        ours: set[Receipt] = set()
        for some in rounds(delivery.receipt for delivery in deliveries):
            asked = (list(some), list(some.values()))
            rows = await self._box.db.fetch(EXTEND, box, *asked, span(lease))
            ours.update((seq, some[seq]) for (seq,) in rows)
        return [delivery.receipt in ours for delivery in deliveries]

    async def _claim(
        self, box: int, limit: int, lease: float, *, alone: bool
    ) -> Sequence[Delivery]:
        db = self._box.db
        # How much it brings is not known: whoever is slow, but works, has longer next.
        within = min(limit_for() * 2**self._late, LONGEST)
        asked = (box, limit, timedelta(seconds=lease), alone)
        claiming = asyncio.ensure_future(db.fetch(_CLAIM, *asked, within=within))
        self._late += 1
        try:
            rows = await asyncio.shield(claiming)
            self._late = 0
        except asyncio.CancelledError:
            self._late = 0
            # Nobody will ever see these deliveries: as if they had not been made.
            with suppress(DeadLetterError):  # closed meanwhile: the lease runs out
                db.start(self._undo(claiming))
            raise
        return deliveries(rows, {box: self.mailbox}) if rows else []

    async def _undo(self, claiming: "asyncio.Future[Rows]") -> None:
        rows = await claiming
        if rows:
            seqs, token = [row[1] for row in rows], rows[0][2]
            await self._box.db.fetch(_UNDO, seqs, token)
            self._box.waking.ring(await self._box.id())

    async def _pause(self, box: int, *, alone: bool) -> float:
        patience = self._box.waking.patience
        rows = await self._box.db.fetch(_NEXT_DUE, box, alone)
        if not rows:
            return patience
        due: timedelta = rows[0][0]
        return min(max(due.total_seconds(), _BREATH), patience)


def _in_parts(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    start = size = 0
    for place, message in enumerate(messages):
        size += len(message.body)
        if size > _AT_ONCE and place > start:
            yield messages[start:place]
            start, size = place, len(message.body)
    yield messages[start:]
