"""
Settlement of deliveries: acknowledged messages are deleted, released ones are copied.

SQS cannot change a stored message. So a released message is sent again with its history
and counts, and then the original is deleted: at least once. In a FIFO queue, at the size
limit, or with `retry=visibility`, the message is made visible again instead, and its
history is cached.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, structs

from deadletter.core.errors import BackendError, Refused
from deadletter.core.message import Delivery
from deadletter.ports.broker import Acked, Released, Settlement
from deadletter.ports.features import Clock

from .connection import Entry, Gone, NoQueue, SqsService
from .message_format import Envelope, Received, decoded, encoded
from .registry import Queue, QueueRegistry
from .sender import Sender

LONGEST: Final = 43_200.0  # seconds that SQS lets anybody hold a message
_REMEMBERED: Final = 10_000


class Claim(Struct, kw_only=True, eq=False):
    """
    A claim on one message: the receipt of a delivery.

    It records the progress of its settlement, which can so be repeated without an
    answer, and sends nothing twice.
    """

    mailbox: str
    received: Received
    taken: float  # when, by our monotonic clock
    until: float  # our lease; SQS's own ends later
    alone: bool = False  # it came from the suspects
    stays: bool = False  # a release makes it visible again, instead of sending a copy
    settling: Settlement | None = None
    copied: bool = False
    forgotten: bool = False  # SQS was asked to delete it
    answered: bool = True

    def takes(self, settlement: Settlement, now: float) -> bool:
        """Return whether this settlement may begin or continue."""
        if self.settling is None:
            begins = now < self.until
            if begins:
                self.settling, self.answered = settlement, False
            return begins
        if self.settling is not settlement or self.answered:
            return False
        return self.copied or self.forgotten or now < self.until

    def is_ours(self, now: float) -> bool:
        """Return whether the lease is valid and no settlement has begun."""
        return self.settling is None and now < self.until

    def room(self, now: float) -> int:
        """Return for how many more seconds SQS lets us hold or hide the message."""
        return int(LONGEST - (now - self.taken))


def claim_of(delivery: Delivery, mailbox: str) -> Claim | None:
    """Return the claim of a delivery, or None if it is of another mailbox."""
    claim = delivery.receipt
    return claim if isinstance(claim, Claim) and claim.mailbox == mailbox else None


class HistoryCache:
    """
    Histories of messages that are not copied: in FIFO queues, at the size limit, and with
    `retry=visibility`.

    It is bounded and lost with the process. Then only the receive count of SQS remains.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}

    def recall(self, id_: str) -> tuple[int, str] | None:
        """Return the spared attempts and the history of a message, or None."""
        return self._known.get(id_)

    def keep(self, id_: str, spared: int, history: str) -> None:
        """Store the history of a message; drop the oldest above the limit."""
        self._known.pop(id_, None)
        self._known[id_] = (spared, history)
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    def drop(self, id_: str) -> None:
        """Forget a message."""
        self._known.pop(id_, None)


Answer: TypeAlias = bool | BackendError


class Copy(NamedTuple):
    """The replacement of a message."""

    delay: float
    envelope: Envelope
    alone: bool  # it goes to the suspects


class Settler:
    """Settles deliveries of any mailbox, and extends their leases."""

    def __init__(
        self,
        service: SqsService,
        registry: QueueRegistry,
        sender: Sender,
        cache: HistoryCache,
        clock: Clock,
    ) -> None:
        self._service = service
        self._registry = registry
        self._sender = sender
        self._cache = cache
        self._clock = clock

    async def settle(self, mailbox: str, settlements: Sequence[Settlement]) -> list[bool]:
        """Delete or release deliveries; return for each whether it was still ours."""
        now = self._clock.monotonic()
        taken: dict[Claim, Settlement] = {}
        mine: list[Claim | None] = []
        for settlement in settlements:
            claim = claim_of(settlement.delivery, mailbox)
            if claim in taken or (claim and not claim.takes(settlement, now)):
                claim = None
            if claim is not None:
                taken[claim] = settlement
            mine.append(claim)
        answers = await self._carry_out(mailbox, taken) if taken else {}
        for answer in answers.values():
            if isinstance(answer, BackendError):
                raise answer
        for claim in taken:
            claim.answered = True
        return [claim is not None and bool(answers[claim]) for claim in mine]

    async def extend(
        self, mailbox: str, deliveries: Sequence[Delivery], lease: float
    ) -> list[bool]:
        """Extend leases to `lease` seconds from now; return for each whether it is still ours."""
        now = self._clock.monotonic()
        claims = [claim_of(delivery, mailbox) for delivery in deliveries]
        ours = {c: None for c in claims if c is not None and c.is_ours(now)}
        lasting = {
            claim: min(ceil(lease), claim.room(now)) for claim in ours if claim.room(now) > 0
        }
        answers = await self._visible_in(mailbox, lasting)
        for claim, answer in answers.items():
            if isinstance(answer, BackendError):
                raise answer
            claim.until = now + min(lease, lasting[claim]) if answer else now
        return [bool(claim is not None and answers.get(claim)) for claim in claims]

    async def put_back(self, mailbox: str, claims: Sequence[Claim]) -> None:
        """Release messages that nobody has run, as if they had not been received."""
        stay = {claim: 0 for claim in claims if claim.stays}
        await self._visible_in(mailbox, stay)
        copies = {
            claim: Copy(0.0, claim.received.envelope, claim.alone)
            for claim in claims
            if claim not in stay
        }
        await self.move(mailbox, copies)

    async def hide(self, mailbox: str, claims: dict[Claim, int]) -> None:
        """Hide messages for a number of seconds."""
        await self._visible_in(mailbox, claims)

    async def _carry_out(self, mailbox: str, taken: dict[Claim, Settlement]) -> dict[Claim, Answer]:
        acked = [c for c, s in taken.items() if isinstance(s, Acked)]
        copies = {c: _released(s, c) for c, s in taken.items() if isinstance(s, Released)}
        stay = {claim: copy for claim, copy in copies.items() if claim.stays}
        move = {claim: copy for claim, copy in copies.items() if not claim.stays}
        done = await asyncio.gather(
            self._forget(mailbox, acked), self.move(mailbox, move), self._let_go(mailbox, stay)
        )
        answers: dict[Claim, Answer] = {}
        for some in done:
            answers |= some
        return answers

    async def _forget(self, mailbox: str, claims: Sequence[Claim]) -> dict[Claim, Answer]:
        """Delete messages, with their cached history and stored bodies."""
        answers = await self._delete(mailbox, claims)
        for claim, gone in answers.items():
            if gone is True:
                self._cache.drop(claim.received.id)
                with suppress(BackendError):  # the bucket's own clean-up gets it
                    await self._sender.discard(claim.received.envelope)
        return answers

    async def move(self, mailbox: str, copies: dict[Claim, Copy]) -> dict[Claim, Answer]:
        """Send copies, then delete what they are copies of."""
        answers: dict[Claim, Answer] = {}
        for alone in (False, True):
            some = {c: copy for c, copy in copies.items() if copy.alone is alone}
            if some:
                answers |= await self._send_copies(mailbox, some, alone=alone)
        copied = [claim for claim in copies if claim.copied]
        answers |= {
            # Copied is released, even where somebody else has the original by now.
            claim: answer if isinstance(answer, BackendError) else True
            for claim, answer in (await self._delete(mailbox, copied)).items()
        }
        return answers

    async def _send_copies(
        self, mailbox: str, copies: dict[Claim, Copy], *, alone: bool
    ) -> dict[Claim, Answer]:
        try:
            queue = await self._queue(mailbox, alone=alone, make=True)
        except BackendError as error:
            return dict.fromkeys(copies, error)
        if queue is None:
            return dict.fromkeys(copies, False)
        entries: dict[Claim, Entry] = {}
        stay: dict[Claim, int] = {}
        for claim, copy in copies.items():
            if claim.copied:
                continue
            message = claim.received.message
            entry = self._sender.copy(queue, message, copy.envelope, copy.delay)
            if entry is None:
                stay[claim] = self._seconds(claim, copy)
            else:
                entries[claim] = entry
        answers: dict[Claim, Answer] = {}
        failures = await self._sender.send(queue, list(entries.values()))
        for claim, failure in zip(entries, failures, strict=True):
            claim.copied = failure is None
            if isinstance(failure, Refused):
                stay[claim] = self._seconds(claim, copies[claim])
            elif failure is not None:
                answers[claim] = False if isinstance(failure, NoQueue) else failure
        return answers | await self._visible_in(mailbox, stay)

    async def _let_go(self, mailbox: str, copies: dict[Claim, Copy]) -> dict[Claim, Answer]:
        """Make messages visible again after their delays."""
        asked = {claim: self._seconds(claim, copy) for claim, copy in copies.items()}
        return await self._visible_in(mailbox, asked)

    def _seconds(self, claim: Claim, copy: Copy) -> int:
        """Cache the history of a message; return for how many seconds to hide it."""
        story = decoded(copy.envelope.history)
        self._cache.keep(claim.received.id, copy.envelope.spared, story)
        room = claim.room(self._clock.monotonic())
        return max(0, min(ceil(copy.delay), room))

    async def _delete(self, mailbox: str, claims: Sequence[Claim]) -> dict[Claim, Answer]:
        again = {claim for claim in claims if claim.forgotten}
        for claim in claims:
            claim.forgotten = True
        entries = {claim: _entry(claim) for claim in claims}
        answers = await self._batch("delete_message_batch", mailbox, entries)
        # Gone at the second try, it was our first that did it.
        return {c: a or c in again for c, a in answers.items()}

    async def _visible_in(self, mailbox: str, claims: dict[Claim, int]) -> dict[Claim, Answer]:
        entries = {
            claim: {**_entry(claim), "VisibilityTimeout": seconds}
            for claim, seconds in claims.items()
        }
        return await self._batch("change_message_visibility_batch", mailbox, entries)

    async def _batch(
        self, verb: str, mailbox: str, entries: dict[Claim, Entry]
    ) -> dict[Claim, Answer]:
        answers: dict[Claim, Answer] = {}
        for alone in (False, True):
            some = {c: entry for c, entry in entries.items() if c.alone is alone}
            if not some:
                continue
            try:
                queue = await self._queue(mailbox, alone=alone)
            except BackendError as error:
                answers |= dict.fromkeys(some, error)
                continue
            if queue is None:
                answers |= dict.fromkeys(some, False)
                continue
            failures = await self._service.batch(verb, queue.url, list(some.values()))
            for claim, failure in zip(some, failures, strict=True):
                answers[claim] = _read(failure)
                if isinstance(failure, NoQueue):
                    self._registry.forget(mailbox)
        return answers

    async def _queue(self, mailbox: str, *, alone: bool, make: bool = False) -> Queue | None:
        """Return the queue of messages or of suspects; None if the mailbox is gone."""
        queue = await self._registry.find(mailbox)
        if queue is None or not alone:
            return queue
        return await self._registry.suspects(mailbox, make=make)


def _released(settlement: Released, claim: Claim) -> Copy:
    """Return the copy that replaces a released message."""
    delivery, history = settlement.delivery, settlement.history
    envelope = structs.replace(
        claim.received.envelope,
        attempts=delivery.attempt,
        spared=delivery.spared + (not settlement.charged),
        first_at=delivery.first_received_at,
        history=encoded(delivery.history if history is None else history),
    )
    # Handed back without having been run, a suspect is still one.
    unrun = delivery.suspect and history is None and not settlement.charged
    return Copy(settlement.delay, envelope, unrun)


def _entry(claim: Claim) -> Entry:
    return {"ReceiptHandle": claim.received.handle}


def _read(failure: BackendError | None) -> Answer:
    if failure is None:
        return True
    return False if isinstance(failure, Gone | NoQueue) else failure
