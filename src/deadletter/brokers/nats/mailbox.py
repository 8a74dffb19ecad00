"""
One mailbox: its stream, our claims, its source and its sink.

A claim is valid while it is listed here with its delivery number, and its lease lasts by
our own clock. The server accepts an ack from anybody.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, structs
from nats.aio.msg import Msg

from deadletter.core.errors import BackendError, Refused
from deadletter.core.ids import CORRUPT
from deadletter.core.message import Delivery, Message
from deadletter.kit import with_expiry
from deadletter.ports.broker import Acked, Released, Settlement
from deadletter.ports.features import Clock, Features

from .connection import Link, Sending
from .delivery_notes import Note, Notes
from .errors import NoResponder
from .messages import Arrival, are_in_order, arrival, packed
from .pull import Pull
from .streams import MARGIN, MailboxNames, Registry, consumer_info, make_consumer, make_stream

_PROGRESS: Final = b"+WPI"
_OFTEN: Final = 3  # renewals during one lease


class Claim(Struct):
    """A claimed delivery."""

    arrival: Arrival
    note: Note  # as of before this delivery
    until: float  # by our clock

    def delivery(self, mailbox: str, now: datetime, *, begun: int = 1) -> Delivery:
        """Return the delivery of a claim."""
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
    """State of one mailbox in this process."""

    def __init__(
        self,
        name: str,
        place: MailboxNames,
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
        self.aside: dict[int, Claim] = {}  # suspects, until they can run alone
        self.lost = 0  # suspects found since the last sweep
        self.put_aside = asyncio.Event()
        self._replicas = replicas
        self._waits = 0.0  # seconds the consumer waits for us; 0: not made yet
        self._made = False
        self._making = asyncio.Lock()
        self._idle: list[Pull] = []
        self._keeping: asyncio.Task[None] | None = None

    async def make(self) -> None:
        """Create the mailbox if it is missing."""
        if self._made:
            return
        async with self._making:
            if not self._made:
                await self.registry.join(self.name)
                await make_stream(self.link, self.place, replicas=self._replicas)
                self._made = True

    async def make_consumer(self, lease: float) -> None:
        """Create the mailbox, and a consumer that waits at least as long as a lease."""
        await self.make()
        if self._waits - MARGIN >= lease:
            return
        async with self._making:
            if self._waits - MARGIN < lease:
                self._waits = await make_consumer(self.link, self.place, lease)

    def forget(self) -> None:
        """Forget a deleted mailbox; the next use creates it again."""
        self._made, self._waits = False, 0.0

    def leave(self) -> None:
        """Forget a deleted mailbox with all its messages."""
        self.forget()
        self.claims.clear()
        self.aside.clear()

    async def pull(self, limit: int, wait: float) -> list[Msg]:
        """Fetch deliveries; those that come too late are released."""
        pull = self._idle.pop() if self._idle else Pull(self.link, self.place)
        try:
            found = await pull.take(limit, wait)
        except BaseException:
            pull.give_up(self.give_back)
            raise
        self._idle.append(pull)
        return found

    def give_back(self, found: list[Msg]) -> None:
        """Release deliveries that reached no handler."""
        self.link.start(self._give_back(self.arrivals(found)))

    def arrivals(self, found: Sequence[Msg]) -> list[Arrival]:
        """
        Decode deliveries; malformed ones come again by themselves.

        They cannot be settled: the server's own part of them was changed.
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
        await self.hold_back([(a, note, 0.0) for a, note in zip(arrivals, notes, strict=True)])

    async def hold_back(self, held: Sequence[tuple[Arrival, Note, float]]) -> None:
        """Release deliveries that reached no handler, each with a delay."""
        if not held:
            return
        await self.notes.write([(a.seq, note.unseen()) for a, note, _ in held])
        await self.link.in_turn([self.nak(a.reply, delay) for a, _, delay in held])

    def nak(self, reply: str, delay: float) -> Sending:
        """Return the message that releases a delivery with a delay."""
        if delay <= 0:
            return Sending(reply, b"-NAK")
        return Sending(reply, b'-NAK {"delay":%d}' % self.link.nanos(delay))

    async def notes_on(self, arrivals: Sequence[Arrival]) -> list[Note]:
        """Return the notes on deliveries; first deliveries have none."""
        again = [a for a in arrivals if a.count > 1]
        read = await self.notes.read([(a.seq, a.message.id) for a in again])
        known = dict(zip((a.seq for a in again), read, strict=True))
        return [(known.get(a.seq) or Note(id=a.message.id)).until(a.count) for a in arrivals]

    def ours(self, delivery: Delivery) -> Claim | None:
        """Return the claim of a delivery whose lease lasts."""
        seq, reply = delivery.receipt
        claim = self.claims.get(seq)
        if claim is None or delivery.mailbox != self.name:
            return None
        if claim.arrival.reply != reply or claim.until <= self.clock.monotonic():
            return None
        return claim

    def let_go(self, claims: Sequence[Claim]) -> None:
        """Remove settled claims."""
        for claim in claims:
            # A released message may have been received again: that is another claim.
            if self.claims.get(claim.arrival.seq) is claim:
                del self.claims[claim.arrival.seq]

    async def renew(self, claims: Sequence[Claim], lease: float) -> None:
        """Extend claims on the server."""
        until = self.clock.monotonic() + lease  # from before the request
        await self.link.in_turn([Sending(claim.arrival.reply, _PROGRESS) for claim in claims])
        for claim in claims:
            claim.until = until

    async def set_aside(self, suspects: Iterable[tuple[Arrival, Note]]) -> None:
        """Keep suspects claimed until they can run alone."""
        found = list(suspects)
        if not found:
            return
        # If we die now, this delivery reached no handler.
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
        """Extend the claims of suspects while there are any."""
        while self.aside:
            await asyncio.sleep(self._waits * self.link.second / _OFTEN)
            with suppress(BackendError):  # they come again after their lease
                await self.renew(list(self.aside.values()), self._waits - MARGIN)

    def suspects(self) -> list[Claim]:
        """Return the suspects that are still claimed."""
        now = self.clock.monotonic()
        for seq, claim in list(self.aside.items()):
            if claim.until <= now:
                del self.aside[seq]
        return list(self.aside.values())

    async def close(self) -> None:
        """Release the suspects."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        claims, self.aside = self.suspects(), {}
        with suppress(BackendError):
            await self.link.in_turn([self.nak(c.arrival.reply, 0) for c in claims])


async def settle(box: Mailbox, settlements: Sequence[Settlement]) -> list[bool]:
    """Ack or release deliveries; return for each whether it was ours."""
    acked: list[Claim] = []
    released: list[tuple[Claim, Released]] = []
    ours = []
    named: set[int] = set()
    for settlement in settlements:
        claim = box.ours(settlement.delivery)
        mine = claim is not None and claim.arrival.seq not in named
        ours.append(mine)  # only the first of duplicates
        if claim is None or not mine:
            continue
        named.add(claim.arrival.seq)
        if isinstance(settlement, Acked):
            acked.append(claim)
        else:
            released.append((claim, settlement))
    if not named:
        return ours
    if released:
        await box.notes.write(
            [(claim.arrival.seq, claim.note.released(how)) for claim, how in released]
        )
    try:
        await box.link.in_turn(
            [
                *(box.nak(c.arrival.reply, _delay(box, c, how)) for c, how in released),
                *(Sending(claim.arrival.reply, b"+ACK") for claim in acked),
            ]
        )
    except NoResponder:
        if await consumer_info(box.link, box.place) is not None:
            raise  # it is restarting
        ours = [False] * len(settlements)  # deleted, with all its messages
    # After an error above the claims stay, to be settled again.
    box.let_go([*acked, *(claim for claim, _ in released)])
    noted = [claim.note for claim in acked if claim.note.place]
    if noted:
        box.link.start(box.notes.drop(noted))
    return ours


def _delay(box: Mailbox, claim: Claim, how: Released) -> float:
    """Return the delay of a released message, at most until its expiry."""
    expires_at = claim.arrival.message.expires_at
    if expires_at is None or how.delay <= 0:
        return max(0.0, how.delay)
    left = (expires_at - box.clock.now()) / timedelta(seconds=1)
    return max(0.0, min(how.delay, left))


class NatsSink:
    """Sends messages to one mailbox."""

    def __init__(self, box: Mailbox) -> None:
        self.mailbox = box.name
        self._box = box

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Send messages; return once the stream has stored all of them.

        Invalid messages are refused before any is sent. If the connection is cut, some
        may be stored: sending them again within the duplicate window adds none.
        """
        if not messages:
            return
        box = self._box
        await box.make()
        life = (await box.registry.options(box.name)).expire_after
        now = box.clock.now()
        due = now + timedelta(seconds=delay) if delay > 0 else None
        largest = box.link.client.max_payload
        sendings = [
            packed(message, box.place.subject, due=due, largest=largest)
            for message in with_expiry(messages, life, now)
        ]
        try:
            answers = await box.link.ask_all(sendings)
        except NoResponder:  # deleted: create it again
            box.forget()
            await box.make()
            answers = await box.link.ask_all(sendings)
        with box.link.reading():
            strange = {answer["stream"] for answer in answers} - {box.place.stream}
        if strange:
            raise Refused(
                f"messages for {box.name} were stored in the stream {min(strange)}: only one"
                f" stream may have the subject {box.place.subject}"
            )


class NatsSource:
    """Deliveries of one mailbox."""

    def __init__(self, box: Mailbox, features: Features) -> None:
        self.mailbox = box.name
        self.features = features
        self._box = box

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        if limit < 1:
            return []
        await self._box.make_consumer(lease)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            left = max(0.0, deadline - loop.time())
            if alone:
                found = await self._receive_alone(left, lease)
            else:
                found = await self._receive(limit, left, lease)
            if found or loop.time() >= deadline:
                return found

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Ack or release deliveries; return for each whether it was ours."""
        return await settle(self._box, settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Extend leases to `lease` seconds from now; return which are still ours."""
        if not deliveries:
            return []
        box = self._box
        claims = [box.ours(delivery) for delivery in deliveries]
        ours = {id(claim): claim for claim in claims if claim is not None}
        if ours:
            await box.make_consumer(lease)
            await box.renew(list(ours.values()), lease)
        return [claim is not None for claim in claims]

    async def _receive(self, limit: int, wait: float, lease: float) -> list[Delivery]:
        box = self._box
        try:
            found = await box.pull(limit, wait)
        except NoResponder:
            box.forget()  # the next call creates it again
            raise
        until = box.clock.monotonic() + lease
        arrivals = box.arrivals(found)
        try:
            return await self._sorted_out(arrivals, until)
        except BaseException:  # these reach no handler
            for a in arrivals:
                box.claims.pop(a.seq, None)
                box.aside.pop(a.seq, None)
            box.give_back(found)
            raise

    async def _sorted_out(self, arrivals: Sequence[Arrival], until: float) -> list[Delivery]:
        """Claim what is due; set suspects aside, and release what must wait."""
        box, now = self._box, self._box.clock.now()
        ready, waiting, suspects = [], [], []
        for a, note in zip(arrivals, await box.notes_on(arrivals), strict=True):
            expires_at = a.message.expires_at
            if note.suspect:
                suspects.append((a, note))
            elif a.due is not None and now < a.due and not note.attempts:
                due = a.due if expires_at is None else min(a.due, expires_at)
                delay = (due - now).total_seconds()
                if delay > 0:
                    waiting.append((a, note, delay))
                else:
                    ready.append(Claim(a, note, until))
            else:
                ready.append(Claim(a, note, until))
        if suspects:
            await box.set_aside(suspects)
        if waiting:
            await box.hold_back(waiting)
        for claim in ready:
            if claim.note.first_at is None:
                claim.note = structs.replace(claim.note, first_at=now)
            box.claims[claim.arrival.seq] = claim
        return [claim.delivery(self.mailbox, now) for claim in ready]

    async def _receive_alone(self, wait: float, lease: float) -> list[Delivery]:
        """Claim one suspect that was set aside."""
        box = self._box
        if not box.suspects():
            box.put_aside.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await box.put_aside.wait()
        suspects = box.suspects()
        if not suspects:
            return []
        claim = min(suspects, key=lambda claim: claim.arrival.seq)
        del box.aside[claim.arrival.seq]
        now = box.clock.now()
        try:
            note = structs.replace(claim.note, first_at=claim.note.first_at or now)
            (written,) = await box.notes.write([(claim.arrival.seq, note.taken_alone())])
            claim.note = structs.replace(note, place=written.place)
            await box.renew([claim], lease)
        except BaseException:
            box.aside[claim.arrival.seq] = claim  # it reached no handler
            raise
        box.claims[claim.arrival.seq] = claim
        return [claim.delivery(self.mailbox, now)]
