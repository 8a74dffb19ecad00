"""
Settling: what is forgotten is deleted, what is released goes back as a copy.

SQS cannot write on a message it holds, so a released one is sent again with its
story and its counts, and then deleted: at least once, like all that SQS does. Where
that would break the order (FIFO), or is impossible (at the size limit), it is made
visible again instead, and we remember what we can.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from typing import NamedTuple, TypeAlias

from msgspec import structs

from deadletter.core.errors import BackendError, Refused
from deadletter.core.message import Delivery
from deadletter.ports.broker import Acked, Released, Settlement
from deadletter.ports.time import Clock

from .claims import Claim, Memory, claim_of
from .errors import Gone, NoQueue
from .link import Entry, Link
from .names import is_fifo
from .post import Post
from .registry import Queue, Registry
from .wire import Slip, decoded, encoded

Answer: TypeAlias = bool | BackendError


class Copy(NamedTuple):
    """What takes the place of a message."""

    delay: float
    slip: Slip
    alone: bool  # it goes to the suspects


class Settling:
    """Gives up deliveries of any mailbox, and keeps them ours until then."""

    def __init__(
        self,
        link: Link,
        registry: Registry,
        post: Post,
        memory: Memory,
        clock: Clock,
    ) -> None:
        self._link = link
        self._registry = registry
        self._post = post
        self._memory = memory
        self._clock = clock

    async def settle(
        self, mailbox: str, settlements: Sequence[Settlement]
    ) -> list[bool]:
        """Forget or hand back; says for each if it was still ours."""
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
        """Keep deliveries ours for `lease` seconds from now; says which still are."""
        now = self._clock.monotonic()
        claims = [claim_of(delivery, mailbox) for delivery in deliveries]
        ours = {c: None for c in claims if c is not None and c.is_ours(now)}
        lasting = {
            claim: min(ceil(lease), claim.room(now))
            for claim in ours
            if claim.room(now) > 0
        }
        answers = await self._visible_in(mailbox, lasting)
        for claim, answer in answers.items():
            if isinstance(answer, BackendError):
                raise answer
            claim.until = now + min(lease, lasting[claim]) if answer else now
        return [bool(claim is not None and answers.get(claim)) for claim in claims]

    async def put_back(self, mailbox: str, claims: Sequence[Claim]) -> None:
        """Put back what nobody will run, as if it had not been received."""
        stay = {claim: 0 for claim in claims if _stays(claim)}
        await self._visible_in(mailbox, stay)
        copies = {
            claim: Copy(0.0, claim.received.slip, claim.alone)
            for claim in claims
            if claim not in stay
        }
        await self.move(mailbox, copies)

    async def hide(self, mailbox: str, claims: dict[Claim, int]) -> None:
        """Let nobody see messages for so many seconds."""
        await self._visible_in(mailbox, claims)

    async def _carry_out(
        self, mailbox: str, taken: dict[Claim, Settlement]
    ) -> dict[Claim, Answer]:
        acked = [c for c, s in taken.items() if isinstance(s, Acked)]
        copies = {
            c: _released(s, c) for c, s in taken.items() if isinstance(s, Released)
        }
        stay = {claim: copy for claim, copy in copies.items() if _stays(claim)}
        move = {claim: copy for claim, copy in copies.items() if not _stays(claim)}
        done = await asyncio.gather(
            self._forget(mailbox, acked),
            self.move(mailbox, move),
            self._let_go(mailbox, stay),
        )
        answers: dict[Claim, Answer] = {}
        for some in done:
            answers |= some
        return answers

    async def _forget(
        self, mailbox: str, claims: Sequence[Claim]
    ) -> dict[Claim, Answer]:
        """Delete messages for good, with what is kept of them elsewhere."""
        answers = await self._delete(mailbox, claims)
        for claim, gone in answers.items():
            if gone is True:
                self._memory.drop(claim.received.id)
                with suppress(BackendError):  # the bucket's own clean-up gets it
                    await self._post.discard(claim.received.slip)
        return answers

    async def move(
        self, mailbox: str, copies: dict[Claim, Copy]
    ) -> dict[Claim, Answer]:
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
        self,
        mailbox: str,
        copies: dict[Claim, Copy],
        *,
        alone: bool,
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
            entry = self._post.copy(queue, message, copy.slip, copy.delay)
            if entry is None:
                stay[claim] = self._seconds(claim, copy)
            else:
                entries[claim] = entry
        answers: dict[Claim, Answer] = {}
        failures = await self._post.send(queue, list(entries.values()))
        for claim, failure in zip(entries, failures, strict=True):
            claim.copied = failure is None
            if isinstance(failure, Refused):
                stay[claim] = self._seconds(claim, copies[claim])
            elif failure is not None:
                answers[claim] = False if isinstance(failure, NoQueue) else failure
        return answers | await self._visible_in(mailbox, stay)

    async def _let_go(
        self, mailbox: str, copies: dict[Claim, Copy]
    ) -> dict[Claim, Answer]:
        """Make messages visible again, in time."""
        asked = {claim: self._seconds(claim, copy) for claim, copy in copies.items()}
        return await self._visible_in(mailbox, asked)

    def _seconds(self, claim: Claim, copy: Copy) -> int:
        """For how long it is hidden that cannot be copied; remembers its story."""
        story = decoded(copy.slip.history)
        self._memory.keep(claim.received.id, copy.slip.spared, story)
        room = claim.room(self._clock.monotonic())
        return max(0, min(ceil(copy.delay), room))

    async def _delete(
        self, mailbox: str, claims: Sequence[Claim]
    ) -> dict[Claim, Answer]:
        again = {claim for claim in claims if claim.forgotten}
        for claim in claims:
            claim.forgotten = True
        entries = {claim: _entry(claim) for claim in claims}
        answers = await self._batch("delete_message_batch", mailbox, entries)
        # Gone at the second try, it was our first that did it.
        return {c: a or c in again for c, a in answers.items()}

    async def _visible_in(
        self, mailbox: str, claims: dict[Claim, int]
    ) -> dict[Claim, Answer]:
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
            failures = await self._link.batch(verb, queue.url, list(some.values()))
            for claim, failure in zip(some, failures, strict=True):
                answers[claim] = _read(failure)
                if isinstance(failure, NoQueue):
                    self._registry.forget(mailbox)
        return answers

    async def _queue(
        self, mailbox: str, *, alone: bool, make: bool = False
    ) -> Queue | None:
        """Where it is, or is to go; None when the mailbox is gone."""
        queue = await self._registry.find(mailbox)
        if queue is None or not alone:
            return queue
        return await self._registry.suspects(mailbox, make=make)


def _stays(claim: Claim) -> bool:
    """Whether it has to stay where it is when it is released."""
    return is_fifo(claim.mailbox)


def _released(settlement: Released, claim: Claim) -> Copy:
    """The copy that takes the place of what was released."""
    delivery, history = settlement.delivery, settlement.history
    slip = structs.replace(
        claim.received.slip,
        attempts=delivery.attempt,
        spared=delivery.spared + (not settlement.charged),
        first_at=delivery.first_received_at,
        history=encoded(delivery.history if history is None else history),
    )
    # Handed back without having been run, a suspect is still one.
    unrun = delivery.suspect and history is None and not settlement.charged
    return Copy(settlement.delay, slip, unrun)


def _entry(claim: Claim) -> Entry:
    return {"ReceiptHandle": claim.received.handle}


def _read(failure: BackendError | None) -> Answer:
    if failure is None:
        return True
    return False if isinstance(failure, Gone | NoQueue) else failure
