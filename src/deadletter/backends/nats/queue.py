"""One mailbox: messages in, deliveries out."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec import structs

from deadletter.core.errors import Refused
from deadletter.core.message import Delivery, Message
from deadletter.ports.broker import Settlement
from deadletter.ports.features import Features

from .errors import Unheard
from .mailbox import Claim, Mailbox
from .packing import Arrival, packed
from .settling import settle


class NatsSink:
    """The way into one mailbox."""

    def __init__(self, box: Mailbox) -> None:
        self.mailbox = box.name
        self._box = box

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Send, returning once the stream has all of them.

        What cannot be sent at all is found out before any is. If the connection is
        cut meanwhile, some may have been sent: the same messages sent again within
        the stream's window are not doubled.
        """
        if not messages:
            return
        box = self._box
        await box.make()
        life = (await box.registry.options(box.name)).expire_after
        now = box.clock.now()
        due = now + timedelta(seconds=delay) if delay > 0 else None
        if life is not None:
            end = now + timedelta(seconds=life)
            messages = [
                structs.replace(m, expires_at=end) if m.expires_at is None else m
                for m in messages
            ]
        largest = box.link.client.max_payload
        sendings = [
            packed(m, box.place.subject, due=due, largest=largest) for m in messages
        ]
        try:
            answers = await box.link.ask_all(sendings)
        except Unheard:  # deleted by somebody: it is made if it is not there
            box.forget()
            await box.make()
            answers = await box.link.ask_all(sendings)
        with box.link.reading():
            strange = {answer["stream"] for answer in answers} - {box.place.stream}
        if strange:
            raise Refused(
                f"what was sent to {box.name} went to the stream {min(strange)}: no two"
                f" streams may take the subject {box.place.subject}"
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
        """Forget or hand back; says for each if it was still ours."""
        return await settle(self._box, settlements)

    async def extend(
        self, deliveries: Sequence[Delivery], *, lease: float
    ) -> Sequence[bool]:
        """Keep deliveries ours for `lease` seconds from now; says which still are."""
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
        except Unheard:
            box.forget()  # if it is gone, the next call makes it again
            raise
        until = box.clock.monotonic() + lease
        arrivals = box.arrivals(found)
        try:
            return await self._sorted_out(arrivals, until)
        except BaseException:  # nobody will ever see these
            for a in arrivals:
                box.claims.pop(a.seq, None)
                box.aside.pop(a.seq, None)
            box.give_back(found)
            raise

    async def _sorted_out(
        self, arrivals: Sequence[Arrival], until: float
    ) -> list[Delivery]:
        """Hand out what may be; keep or send away what must wait."""
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
        """One of the suspects that others have found."""
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
            (written,) = await box.notes.write(
                [(claim.arrival.seq, note.taken_alone())]
            )
            claim.note = structs.replace(note, place=written.place)
            await box.renew([claim], lease)
        except BaseException:
            box.aside[claim.arrival.seq] = claim  # as it was: nobody has seen it
            raise
        box.claims[claim.arrival.seq] = claim
        return [claim.delivery(self.mailbox, now)]
