"""One mailbox: messages in, deliveries out."""

import asyncio
from collections.abc import Sequence
from typing import Final

from deadletter.core.message import Delivery, Message
from deadletter.ports.broker import Acked, Released, Settlement
from deadletter.ports.features import Features

from .mailbox import Mailbox
from .member import Member
from .rows import Row
from .wire import micros

_FEW: Final = 10  # who takes no more at a time is in no hurry


class KafkaSink:
    """The way into one mailbox."""

    def __init__(self, box: Mailbox) -> None:
        self.mailbox = box.name
        self._box = box

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Send messages, returning once all replicas in sync have them.

        What cannot be sent is refused before anything is. Should the broker fail
        half-way, some are there, and sending them again doubles those.
        """
        if messages:
            await self._box.send(messages, delay=delay)


class KafkaSource:
    """Deliveries of one mailbox."""

    def __init__(self, box: Mailbox, features: Features) -> None:
        self.mailbox = box.name
        self.features = features
        self._box = box

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """
        Take up to `limit` deliveries, waiting up to `wait` seconds for the first.

        The first call joins the consumer group, however long that takes. One that
        does not wait asks the broker whether there is more than we have in hand.
        """
        if limit < 1:
            return []
        member = await self._box.member()
        await self._box.send_round(member)
        if wait <= 0:
            await member.caught_up()
            member.went_well()
            await self._box.send_round(member)
        limit = 1 if alone else limit
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            found = await self._claimed(member, limit, lease, alone=alone)
            left = deadline - loop.time()
            if found or left <= 0:
                return found
            await member.rung(min(left, self._until_due(member, alone=alone)))
            await self._box.send_round(member)
            member.raise_trouble()

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Forget or hand back, with one commit; says for each if it was ours."""
        if not settlements:
            return []
        member = await self._box.member()
        now = self._box.now()
        seen: set[int] = set()
        rows: list[Row | None] = []
        with member.lock:
            for settlement in settlements:
                row = member.holding.ours(settlement.delivery, now)
                rows.append(None if row is None or id(row) in seen else row)
                seen.add(id(row))
        await self._send_back(member, settlements, rows, now)
        with member.lock:
            for settlement, row in zip(settlements, rows, strict=True):
                if row is not None and isinstance(settlement, Acked):
                    member.holding.end(row, settlement.fate)
        return await self._told(member, rows)

    async def extend(
        self, deliveries: Sequence[Delivery], *, lease: float
    ) -> Sequence[bool]:
        """
        Keep deliveries ours for `lease` seconds from now; says which still are.

        The broker is asked: it takes a commit only from a partition's owner.
        """
        if not deliveries:
            return []
        member = await self._box.member()
        now = self._box.now()
        until = now + round(lease * 1e6)
        with member.lock:
            rows = [member.holding.ours(delivery, now) for delivery in deliveries]
        await member.commit({row.lane for row in rows if row is not None})
        with member.lock:
            for row in rows:
                if row is not None:
                    row.leased, row.lease = until, until - now
        return [row is not None and not row.lane.gone for row in rows]

    async def _claimed(
        self, member: Member, limit: int, lease: float, *, alone: bool
    ) -> Sequence[Delivery]:
        while True:
            now = self._box.now()
            until = now + round(lease * 1e6)
            with member.lock:
                ready = [] if alone else member.holding.take_ready(now, until, limit)
                ahead = not alone and member.counts_ahead  # nobody overtakes those
                rest = 0 if ahead else limit - len(ready)
                fresh = member.holding.claim(now, until, rest, alone=alone)
            rows = [*ready, *fresh]
            if rows or not ahead:
                break
            await member.until_counted()
        if len(rows) == limit > _FEW:
            member.count_ahead(limit)
        if fresh:
            try:
                await member.commit({row.lane for row in fresh})
            except BaseException:
                # Nobody will ever see these deliveries: as if they were not made.
                with member.lock:
                    for row in rows:
                        member.holding.put_back(row)
                member.ring()
                raise
            member.went_well()
        with member.lock:
            return [
                row.delivery(self.mailbox, now) for row in rows if not row.lane.gone
            ]

    async def _send_back(
        self,
        member: Member,
        settlements: Sequence[Settlement],
        rows: Sequence[Row | None],
        now: int,
    ) -> None:
        """Put what is released into the retry topic: durable there, it may end here."""
        going = []
        for settlement, row in zip(settlements, rows, strict=True):
            if row is None or row.ended or not isinstance(settlement, Released):
                continue
            wait = max(0, round(settlement.delay * 1e6))
            due = now + wait
            if row.message.expires_at is not None:
                due = min(due, micros(row.message.expires_at))
            trail = row.released(
                due, wait, history=settlement.history, charged=settlement.charged
            )
            going.append((row, trail))
        await self._box.republish(member, going)

    async def _told(self, member: Member, rows: Sequence[Row | None]) -> list[bool]:
        ended = [row for row in rows if row is not None]
        await member.commit_ended({row.lane for row in ended})
        with member.lock:
            ours = [row is not None and not row.lane.gone for row in rows]
            for row in ended:
                member.holding.forget(row)
        member.went_well()
        return ours

    def _until_due(self, member: Member, *, alone: bool) -> float:
        with member.lock:
            due = member.holding.next_due(alone=alone)
        if due is None:
            return 60.0
        return max(0.001, (due - self._box.now()) / 1e6)
