"""Mailboxes in memory: for tests, demos and a single process that may forget."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeAlias

from msgspec import Struct, structs

from deadletter.core.errors import NotFound
from deadletter.core.message import Delivery, Message
from deadletter.core.topology import check_creation, check_deletion, check_name, check_update
from deadletter.ports.broker import (
    Acked,
    Fate,
    QueueInfo,
    QueueOptions,
    Released,
    Settlement,
    Swept,
)
from deadletter.ports.features import Clock, Features

# One mailbox, as plain objects: what is in it, and whose it is.

MISDATED: Final = timedelta(seconds=1)  # clocks that agree differ by less
Lane: TypeAlias = list[tuple[datetime, int]]  # due and seq, as a heap


class Row(Struct, kw_only=True):
    """A message that is there, and how it stands."""

    seq: int
    message: Message
    due: datetime
    span: timedelta = timedelta()  # how long the current wait or lease was to last
    token: int | None = None  # whose it is; None when nobody's
    leased: datetime | None = None  # until when
    attempts: int = 0
    spared: int = 0
    suspect: bool = False
    alone: bool = False  # how it was claimed
    first_at: datetime | None = None
    history: str = ""

    def claim(self, token: int, until: datetime, now: datetime, *, alone: bool) -> None:
        """Claim the message from `now` until `until`."""
        self.token, self.alone = token, alone
        self.leased, self.span = until, until - now

    def let_go(self) -> None:
        """Clear the owner of the message."""
        self.token, self.leased, self.alone = None, None, False

    def waits(self, due: datetime, *, alone: bool) -> bool:
        """Return whether the message is in that lane, at that place."""
        return self.token is None and self.suspect is alone and self.due == due

    def expired(self, now: datetime) -> bool:
        """Return whether the message has expired."""
        expires_at = self.message.expires_at
        return expires_at is not None and expires_at <= now

    def delivery(self, mailbox: str) -> Delivery:
        """Its handing-over."""
        return Delivery(
            message=self.message,
            mailbox=mailbox,
            attempt=self.attempts,
            spared=self.spared,
            suspect=self.suspect,
            first_received_at=self.first_at,
            history=self.history,
            receipt=(self.seq, self.token),
        )


class MemoryMailbox:
    """One mailbox."""

    def __init__(self, name: str) -> None:
        self.options = QueueOptions(name=name)
        self.gone = False  # deleted; its tally stays
        self.rows: dict[int, Row] = {}
        self.tally: Counter[str] = Counter()
        self._ready: Lane = []
        self._suspects: Lane = []
        self._waiting: dict[asyncio.Event, None] = {}  # in the order they came

    def put(self, row: Row) -> None:
        """A message came in."""
        self.rows[row.seq] = row
        self.tally["sent"] += 1
        self._line_up(row)

    def claim(
        self, now: datetime, until: datetime, token: int, limit: int, *, alone: bool
    ) -> list[Row]:
        """The next ones that are due, claimed."""
        lane = self._suspects if alone else self._ready
        claimed: list[Row] = []
        while len(claimed) < limit and lane and lane[0][0] <= now:
            due, seq = heappop(lane)
            row = self.rows.get(seq)
            if row is None or not row.waits(due, alone=alone):
                continue  # it left this place by another way
            row.claim(token, until, now, alone=alone)
            row.attempts += 1
            row.first_at = row.first_at or now
            claimed.append(row)
        return claimed

    def next_due(self, *, alone: bool) -> datetime | None:
        """Return the latest time to look again."""
        lane = self._suspects if alone else self._ready
        return lane[0][0] if lane else None

    def ours(self, delivery: Delivery, now: datetime) -> Row | None:
        """The row of a delivery whose lease still runs."""
        seq, token = delivery.receipt
        row = self.rows.get(seq)
        if row is None or row.token != token or row.leased is None:
            return None
        return row if row.leased > now else None

    def settle(self, settlement: Settlement, now: datetime) -> bool:
        """Forget it or take it back, if it was theirs to give."""
        row = self.ours(settlement.delivery, now)
        if row is None:
            return False
        match settlement:
            case Acked(_, fate):
                del self.rows[row.seq]
                self.tally[fate] += 1
            case Released():
                self._release(row, settlement, now)
        return True

    def take_back(self, now: datetime) -> int:
        """Make suspects of what lost workers held; how many there were."""
        lost = [row for row in self.rows.values() if row.leased is not None and row.leased <= now]
        for row in lost:
            # Lost in company, it may have been a neighbour's fault: not charged.
            # Lost alone, it was its own.
            row.spared += not row.alone
            row.suspect = True
            row.span = timedelta()
            row.let_go()
            self._line_up(row)
        return len(lost)

    def shorten(self, now: datetime) -> tuple[int, timedelta]:
        """
        Shorten waits and leases that would last longer than was asked for.

        Returns how many there were and how far the furthest was ahead.
        """
        count, furthest = 0, timedelta()
        for row in self.rows.values():
            latest = now + row.span
            ahead = (row.leased or row.due) - latest
            if ahead <= MISDATED:
                continue
            count, furthest = count + 1, max(furthest, ahead)
            if row.leased is None:
                row.due = latest
                self._line_up(row)
            else:
                row.leased = latest
        if count:
            self.ring()
        return count, furthest

    def doomed(self, now: datetime) -> Iterable[Row]:
        """Yield messages without a lease that must not be tried again."""
        limit = self.options.max_attempts
        for row in self.rows.values():
            exhausted = row.suspect and 0 < limit <= row.attempts - row.spared
            if row.token is None and (row.expired(now) or exhausted):
                yield row

    def has_suspects(self, now: datetime) -> bool:
        """Return whether a suspect waits to be run alone."""
        return any(
            row.suspect and row.token is None and row.due <= now for row in self.rows.values()
        )

    def leave(self) -> int:
        """Be deleted; how many messages went with it."""
        purged = len(self.rows)
        self.rows.clear()
        self.gone = True
        self.options = QueueOptions(name=self.options.name)
        if purged:
            self.tally[Fate.PURGED] += purged
        return purged

    def without_dead_queue(self) -> None:
        """Its dead queue was deleted."""
        self.options = structs.replace(self.options, dead_queue=None)

    def info(self, now: datetime) -> QueueInfo:
        """Return the counts of the mailbox."""
        free = [row for row in self.rows.values() if row.token is None]
        line = [row for row in free if not row.suspect]
        head = min(line, key=lambda row: (row.due, row.seq), default=None)
        ready = sum(row.due <= now for row in line)
        return QueueInfo(
            options=self.options,
            ready=ready,
            delayed=len(line) - ready,
            claimed=len(self.rows) - len(free),
            suspects=len(free) - len(line),
            oldest_at=None if head is None else head.message.sent_at,
            tally={"sent": 0, **self.tally},
        )

    def ring(self) -> None:
        """Wake those who wait for something."""
        for bell in self._waiting:
            bell.set()

    async def rung(self, timeout: float) -> None:  # noqa: ASYNC109 -- not an error
        """Wait for a ring, or for so long."""
        bell = asyncio.Event()
        self._waiting[bell] = None
        try:
            async with asyncio.timeout(timeout):
                await bell.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(bell, None)

    def _release(self, row: Row, released: Released, now: datetime) -> None:
        row.span = later(released.delay)
        row.due = sooner(now + row.span, row.message.expires_at)
        row.spared += not released.charged
        # Its handler has run and its worker lives: it is proven. What comes back
        # unrun, and so uncharged and without a story, is not.
        if released.charged or released.history is not None:
            row.suspect = False
        if released.history is not None:
            row.history = released.history
        row.let_go()
        self._line_up(row)

    def _line_up(self, row: Row) -> None:
        heappush(self._suspects if row.suspect else self._ready, (row.due, row.seq))


def expiring(message: Message, expire_after: float | None, now: datetime) -> Message:
    """The message with the expiry its mailbox gives it, if it has none itself."""
    if message.expires_at is not None or expire_after is None:
        return message
    return structs.replace(message, expires_at=now + later(expire_after))


def later(seconds: float) -> timedelta:
    """Return a span, zero if it is negative."""
    return timedelta(seconds=max(0.0, seconds))


def sooner(due: datetime, expires_at: datetime | None) -> datetime:
    """Return when the message is due, or when it expires if that is sooner."""
    return due if expires_at is None else min(due, expires_at)


class MemoryBroker:
    """Mailboxes of one process and one event loop."""

    def __init__(self, features: Features, *, clock: Clock) -> None:
        self.features = features
        self.clock = clock
        self.numbers = count(1)  # of messages and of claims
        self._boxes: dict[str, MemoryMailbox] = {}

    def source(self, mailbox: str) -> "MemorySource":
        """Deliveries of one mailbox, which is made if it is not there yet."""
        check_name(mailbox)
        return MemorySource(self, mailbox)

    def sink(self, mailbox: str) -> "MemorySink":
        """The way into one mailbox, which is made if it is not there yet."""
        check_name(mailbox)
        return MemorySink(self, mailbox)

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""
        existing = self._existing()
        check_creation(options, existing)
        self.box(options.name).options = options

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""
        existing = self._existing()
        check_update(options, existing)
        self.box(options.name).options = options

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""
        existing = self._existing()
        if name not in existing:
            raise NotFound(f"there is no queue {name!a}")
        for user in check_deletion(name, existing, force=force):
            self._boxes[user].without_dead_queue()
        return self._boxes[name].leave()

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name."""
        now = self.clock.now()
        return [self._boxes[name].info(now) for name in sorted(self._existing())]

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Return None: mailboxes of this engine have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Take back what lost workers held, and claim what is past saving."""
        now = self.clock.now()
        until, token = now + later(lease), next(self.numbers)
        shortened = [box.shorten(now) for box in self._boxes.values()]
        lost = sum(box.take_back(now) for box in self._boxes.values())
        dead_queues = {o.dead_queue for o in self._existing().values()}
        doomed: list[Delivery] = []
        for name, box in self._boxes.items():
            # A dead queue's messages neither expire nor run out of attempts.
            for row in () if name in dead_queues else list(box.doomed(now)):
                if len(doomed) < limit:
                    # Not an attempt, so none is counted; and held alone, so that
                    # losing it again neither charges nor spares it anything.
                    row.claim(token, until, now, alone=True)
                    doomed.append(row.delivery(name))
        waiting = {name for name, box in self._boxes.items() if box.has_suspects(now)}
        return Swept(
            lost,
            frozenset(waiting),
            tuple(doomed),
            misdated=sum(count for count, _ in shortened),
            ahead=max((ahead.total_seconds() for _, ahead in shortened), default=0.0),
        )

    def box(self, name: str) -> MemoryMailbox:
        """The mailbox of that name, made if it is not there."""
        box = self._boxes.get(name)
        if box is None:
            box = self._boxes[name] = MemoryMailbox(name)
        box.gone = False
        return box

    def _existing(self) -> dict[str, QueueOptions]:
        return {name: b.options for name, b in self._boxes.items() if not b.gone}


class MemorySink:
    """The way into one mailbox."""

    def __init__(self, broker: MemoryBroker, mailbox: str) -> None:
        self.mailbox = mailbox
        self._broker = broker

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all or none."""
        if not messages:
            return
        box = self._broker.box(self.mailbox)
        now = self._broker.clock.now()
        for given in messages:
            message = expiring(given, box.options.expire_after, now)
            span = later(delay)
            due = sooner(now + span, message.expires_at)
            seq = next(self._broker.numbers)
            box.put(Row(seq=seq, message=message, due=due, span=span))
        box.ring()


class MemorySource:
    """Deliveries of one mailbox."""

    def __init__(self, broker: MemoryBroker, mailbox: str) -> None:
        self.mailbox = mailbox
        self.features = broker.features
        self._broker = broker

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        if limit < 1:
            return []
        limit = 1 if alone else limit
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            box = self._broker.box(self.mailbox)
            now = self._broker.clock.now()
            token = next(self._broker.numbers)
            rows = box.claim(now, now + later(lease), token, limit, alone=alone)
            left = deadline - loop.time()
            if rows or left <= 0:
                return [row.delivery(self.mailbox) for row in rows]
            due = box.next_due(alone=alone)
            if due is not None:
                left = min(left, (due - now).total_seconds())
            await box.rung(left)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Forget or hand back; says for each if it was still ours."""
        box = self._broker.box(self.mailbox)
        now = self._broker.clock.now()
        ours = [box.settle(settlement, now) for settlement in settlements]
        box.ring()
        return ours

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Keep deliveries ours for `lease` seconds from now; says which still are."""
        box = self._broker.box(self.mailbox)
        now = self._broker.clock.now()
        ours = [box.ours(delivery, now) for delivery in deliveries]
        for row in ours:
            if row is not None:
                row.span = later(lease)
                row.leased = now + row.span
        return [row is not None for row in ours]
