"""Mailboxes in memory: for tests, demos and a single process that may forget."""

import asyncio
from collections.abc import Sequence
from itertools import count

from deadletter.core.errors import NotFound
from deadletter.core.message import Delivery, Message
from deadletter.core.topology import (
    check_creation,
    check_deletion,
    check_name,
    check_update,
)
from deadletter.ports.broker import QueueInfo, QueueOptions, Settlement, Swept
from deadletter.ports.features import Features
from deadletter.ports.time import Clock

from .mailbox import Box, Row, expiring, later, sooner


class MemoryBroker:
    """Mailboxes of one process and one event loop."""

    def __init__(self, features: Features, *, clock: Clock) -> None:
        self.features = features
        self.clock = clock
        self.numbers = count(1)  # of messages and of claims
        self._boxes: dict[str, Box] = {}

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
        """None: mailboxes here have no limits of their own."""
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

    def box(self, name: str) -> Box:
        """The mailbox of that name, made if it is not there."""
        box = self._boxes.get(name)
        if box is None:
            box = self._boxes[name] = Box(name)
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

    async def extend(
        self, deliveries: Sequence[Delivery], *, lease: float
    ) -> Sequence[bool]:
        """Keep deliveries ours for `lease` seconds from now; says which still are."""
        box = self._broker.box(self.mailbox)
        now = self._broker.clock.now()
        ours = [box.ours(delivery, now) for delivery in deliveries]
        for row in ours:
            if row is not None:
                row.span = later(lease)
                row.leased = now + row.span
        return [row is not None for row in ours]
