"""
What all who use one mailbox share: its place on the server, and what is ours.

A delivery is ours while it stands here, under the number it was delivered with, and
its lease runs by our own clock. The server takes an ack from anybody.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from msgspec import Struct, structs
from nats.aio.msg import Msg

from deadletter.core.checksum import CORRUPT
from deadletter.core.errors import BackendError
from deadletter.core.message import Delivery
from deadletter.ports.time import Clock

from .link import Link, Sending
from .names import Place
from .notes import Note, Notes
from .packing import Arrival, are_in_order, arrival
from .pulling import Pull
from .registry import Registry
from .streams import MARGIN, make_consumer, make_stream

_PROGRESS: Final = b"+WPI"
_OFTEN: Final = 3  # times a lease is renewed while it lasts


class Claim(Struct):
    """A delivery that is ours."""

    arrival: Arrival
    note: Note  # as it stands before this delivery
    until: float  # by our clock

    def delivery(self, mailbox: str, now: datetime, *, begun: int = 1) -> Delivery:
        """How it is handed out."""
        note = self.note
        return Delivery(
            message=self.arrival.message,
            mailbox=mailbox,
            attempt=note.attempts + begun,
            spared=note.spared,
            suspect=note.suspect,
            position=self.arrival.position,
            first_received_at=note.first_at or (now if begun else None),
            history=note.history,
            receipt=(self.arrival.seq, self.arrival.reply),
            unreadable=CORRUPT if self.arrival.corrupt else "",
            corrupt=self.arrival.corrupt,
        )


class Mailbox:
    """One mailbox, as this process sees it."""

    def __init__(
        self,
        name: str,
        place: Place,
        *,
        link: Link,
        registry: Registry,
        notes: Notes,
        clock: Clock,
        replicas: int,
    ) -> None:
        self.name = name
        self.place = place
        self.link = link
        self.registry = registry
        self.notes = notes
        self.clock = clock
        self.claims: dict[int, Claim] = {}
        self.aside: dict[int, Claim] = {}  # suspects, until somebody is alone
        self.lost = 0  # suspects found since the last sweep
        self.put_aside = asyncio.Event()
        self._replicas = replicas
        self._waits = 0.0  # seconds the consumer waits for us; 0: not made yet
        self._made = False
        self._making = asyncio.Lock()
        self._idle: list[Pull] = []
        self._keeping: asyncio.Task[None] | None = None

    async def make(self) -> None:
        """Have the mailbox."""
        if self._made:
            return
        async with self._making:
            if not self._made:
                await self.registry.join(self.name)
                await make_stream(self.link, self.place, replicas=self._replicas)
                self._made = True

    async def make_consumer(self, lease: float) -> None:
        """Have the mailbox, and a consumer that waits for us as long as asked."""
        await self.make()
        if self._waits - MARGIN >= lease:
            return
        async with self._making:
            if self._waits - MARGIN < lease:
                self._waits = await make_consumer(self.link, self.place, lease)

    def forget(self) -> None:
        """It was deleted, or lost; whoever uses it next makes it again."""
        self._made, self._waits = False, 0.0

    def leave(self) -> None:
        """It was deleted, with all that was in it."""
        self.forget()
        self.claims.clear()
        self.aside.clear()

    async def pull(self, limit: int, wait: float) -> list[Msg]:
        """Deliveries from the server; what comes too late is given back."""
        pull = self._idle.pop() if self._idle else Pull(self.link, self.place)
        try:
            found = await pull.take(limit, wait)
        except BaseException:
            pull.give_up(self.give_back)
            raise
        self._idle.append(pull)
        return found

    def give_back(self, found: list[Msg]) -> None:
        """Give back what nobody got to see."""
        self.link.start(self._give_back(self.arrivals(found)))

    def arrivals(self, found: Sequence[Msg]) -> list[Arrival]:
        """
        Read deliveries; those that cannot be read come again by themselves.

        Nobody could settle them: the server's own part of them has been changed.
        """
        read: list[Arrival] = []
        for msg in found:
            try:
                read.append(arrival(msg, self.place))
            except (ValueError, IndexError):
                self.link.renew()
        if are_in_order(read):
            return read
        self.link.renew()
        return []

    async def _give_back(self, arrivals: Sequence[Arrival]) -> None:
        notes = await self.notes_on(arrivals)
        await self.hold_back(
            [(a, note, 0.0) for a, note in zip(arrivals, notes, strict=True)]
        )

    async def hold_back(self, held: Sequence[tuple[Arrival, Note, float]]) -> None:
        """Have deliveries nobody got to see come back after a while."""
        if not held:
            return
        await self.notes.write([(a.seq, note.unseen()) for a, note, _ in held])
        await self.link.in_turn([self.nak(a.reply, delay) for a, _, delay in held])

    def nak(self, reply: str, delay: float) -> Sending:
        """Give a delivery back to the server, to come again after a while."""
        if delay <= 0:
            return Sending(reply, b"-NAK")
        return Sending(reply, b'-NAK {"delay":%d}' % self.link.nanos(delay))

    async def notes_on(self, arrivals: Sequence[Arrival]) -> list[Note]:
        """What is known about deliveries; of a first one there is nothing to know."""
        again = [a for a in arrivals if a.count > 1]
        read = await self.notes.read([(a.seq, a.message.id) for a in again])
        known = dict(zip((a.seq for a in again), read, strict=True))
        return [
            (known.get(a.seq) or Note(id=a.message.id)).until(a.count) for a in arrivals
        ]

    def ours(self, delivery: Delivery) -> Claim | None:
        """The claim of a delivery whose lease still runs."""
        seq, reply = delivery.receipt
        claim = self.claims.get(seq)
        if claim is None or delivery.mailbox != self.name:
            return None
        if claim.arrival.reply != reply or claim.until <= self.clock.monotonic():
            return None
        return claim

    def let_go(self, claims: Sequence[Claim]) -> None:
        """These are settled: whoever comes with them again is too late."""
        for claim in claims:
            # What was given back may have been received anew: that is another claim.
            if self.claims.get(claim.arrival.seq) is claim:
                del self.claims[claim.arrival.seq]

    async def renew(self, claims: Sequence[Claim], lease: float) -> None:
        """Have the server wait anew for these."""
        until = self.clock.monotonic() + lease  # counted from before we ask
        await self.link.in_turn(
            [Sending(claim.arrival.reply, _PROGRESS) for claim in claims]
        )
        for claim in claims:
            claim.until = until

    async def set_aside(self, suspects: Iterable[tuple[Arrival, Note]]) -> None:
        """Keep suspects ours, unseen, until somebody is alone."""
        found = list(suspects)
        if not found:
            return
        # Should we be lost with them, nobody got to see this delivery.
        written = await self.notes.write([(a.seq, note.unseen()) for a, note in found])
        until = self.clock.monotonic() + self._waits - MARGIN
        for (a, note), there in zip(found, written, strict=True):
            kept = structs.replace(note, place=there.place)
            self.aside[a.seq] = Claim(a, kept, until)
        self.lost += len(found)
        self.put_aside.set()
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep_aside())

    async def _keep_aside(self) -> None:
        """Keep the suspects ours for as long as there are any."""
        while self.aside:
            await asyncio.sleep(self._waits * self.link.second / _OFTEN)
            with suppress(BackendError):  # they come back when it is over
                await self.renew(list(self.aside.values()), self._waits - MARGIN)

    def suspects(self) -> list[Claim]:
        """Those set aside that are still ours."""
        now = self.clock.monotonic()
        for seq, claim in list(self.aside.items()):
            if claim.until <= now:
                del self.aside[seq]
        return list(self.aside.values())

    async def close(self) -> None:
        """Give back what is set aside."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        claims, self.aside = self.suspects(), {}
        with suppress(BackendError):
            await self.link.in_turn([self.nak(c.arrival.reply, 0) for c in claims])
