"""
Receiver of messages: several calls at once, sorted before delivery.

Messages that are not due yet are hidden until they are. A message that a lost worker
held, as its receive count tells, moves to the queue of suspects. Suspects are delivered
one at a time.

With `retry=visibility` messages stay where they are, since SQS itself counts what lost
workers held. The delivery says when SQS would move the message to its dead queue next.
"""

import asyncio
from collections.abc import Sequence
from math import ceil
from typing import Final

from msgspec import structs

from deadletter.core.errors import Unavailable
from deadletter.core.message import BrokerMove, Delivery
from deadletter.ports.features import Clock

from .connection import BATCH, NoQueue, SqsService, is_other
from .message_format import Received, decoded, is_fifo, name_in, read
from .registry import Queue, QueueRegistry, redrive_of
from .sender import Sender
from .settler import LONGEST, Claim, Copy, HistoryCache, Settler

_LONGEST_POLL: Final = 20  # seconds
_FIFO_CALLS: Final = 10  # at once, each for one message
_TRAVEL: Final = 1.0  # seconds an answer may be under way while our lease runs


class Receiver:
    """Receives deliveries from queues."""

    def __init__(
        self,
        service: SqsService,
        registry: QueueRegistry,
        sender: Sender,
        settler: Settler,
        *,
        cache: HistoryCache,
        clock: Clock,
        in_place: bool = False,
    ) -> None:
        self._service = service
        self._registry = registry
        self._sender = sender
        self._settler = settler
        self._cache = cache
        self._clock = clock
        self._in_place = in_place  # retry=visibility
        self._busy: set[str] = set()  # mailboxes in which there was more
        self.lost: dict[str, int] = {}  # suspects found since somebody asked

    async def receive(
        self, mailbox: str, *, limit: int, wait: float, lease: float, alone: bool
    ) -> list[Delivery]:
        """Return deliveries; wait up to `wait` seconds for the first."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            queue = await self._queue(mailbox, alone=alone)
            if queue is None:
                return []
            left = deadline - loop.time()
            try:
                claims = await self._fetch(queue, limit, max(0.0, left), lease, alone)
            except NoQueue:
                self._registry.forget(mailbox)
                raise
            deliveries, again = await self._sorted(queue, claims)
            if deliveries or (deadline <= loop.time() and not again):
                return deliveries

    async def _queue(self, mailbox: str, *, alone: bool) -> Queue | None:
        if not alone:
            return await self._registry.get(mailbox)
        return await self._registry.suspects(mailbox)

    async def _fetch(
        self, queue: Queue, limit: int, wait: float, lease: float, alone: bool
    ) -> list[Claim]:
        """
        Claim up to `limit` messages.

        While the queue is busy, all calls go out at once and none of them waits.
        Otherwise one call waits for the first message.
        """
        sizes = _sizes(queue, limit)
        claims: list[Claim] = []
        if not wait or queue.name in self._busy:
            claims = await self._calls(queue, sizes, 0.0, lease, alone=alone)
        if wait and not claims:
            claims = await self._calls(queue, sizes[:1], wait, lease, alone=alone)
            if len(claims) == sizes[0] and len(sizes) > 1:
                rest = self._calls(queue, sizes[1:], 0.0, lease, alone=alone)
                claims += await rest
        if len(claims) >= sizes[0]:
            self._busy.add(queue.name)
        else:
            self._busy.discard(queue.name)
        return claims

    async def _calls(
        self, queue: Queue, sizes: Sequence[int], wait: float, lease: float, *, alone: bool
    ) -> list[Claim]:
        answers = await asyncio.gather(
            *(self._call(queue, size, wait, lease, alone=alone) for size in sizes),
            return_exceptions=True,
        )
        claims: list[Claim] = []
        trouble: BaseException | None = None
        for answer in answers:
            if isinstance(answer, BaseException):
                trouble = answer
            else:
                claims += answer
        if trouble is not None and not claims:
            raise trouble
        return claims

    async def _call(
        self, queue: Queue, size: int, wait: float, lease: float, *, alone: bool
    ) -> list[Claim]:
        begun = self._clock.monotonic()
        answer = await (self._service.wait if wait else self._service.call)(
            "receive_message",
            QueueUrl=queue.url,
            MaxNumberOfMessages=size,
            WaitTimeSeconds=min(ceil(wait), _LONGEST_POLL),
            VisibilityTimeout=int(min(ceil(lease), LONGEST)),
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        now = self._clock.monotonic()
        taken = max(begun, now - _TRAVEL)
        came = answer.get("Messages", ())
        # What was changed on its way is whole at SQS, and comes again after the lease.
        whole = [raw for raw in came if not is_other(raw.get("MD5OfBody"), raw["Body"])]
        if came and not whole:
            raise Unavailable(f"{len(came)} messages arrived damaged (their checksums differ)")
        return [
            Claim(
                mailbox=queue.name,
                received=read(raw, name_in(queue.url), self._sender.seal.keys),
                taken=taken,
                until=taken + lease,
                alone=alone,
                stays=queue.fifo or (self._in_place and not alone),
            )
            for raw in whole
        ]

    async def _sorted(self, queue: Queue, claims: Sequence[Claim]) -> tuple[list[Delivery], bool]:
        """Return deliveries, and whether others become available in a moment."""
        mailbox = queue.name
        run: list[Claim] = []
        early: dict[Claim, int] = {}
        moves: dict[Claim, Copy] = {}
        for claim in claims:
            wait = self._sender.until_due(claim.received.envelope)
            if wait > 0 and self._is_hidden(claim):
                room = claim.room(self._clock.monotonic())
                early[claim] = min(ceil(wait), room)
            elif wait > 0:
                moves[claim] = Copy(wait, claim.received.envelope, claim.alone)
            elif (move := self._move(claim)) is not None:
                moves[claim] = move
            else:
                run.append(claim)
        if early:
            await self._settler.hide(mailbox, early)
        again = bool(moves) and await self._moved(mailbox, moves)
        return await self._deliveries(queue, run), again

    async def _moved(self, mailbox: str, moves: dict[Claim, Copy]) -> bool:
        """Move messages; return whether some of them stay in this queue."""
        answers = await self._settler.move(mailbox, moves)
        found = 0
        for claim, copy in moves.items():
            if answers.get(claim) is not True:
                continue  # it comes back when our lease on it is over
            if claim.copied and copy.alone and not claim.alone:
                self.lost[mailbox] = self.lost.get(mailbox, 0) + 1
            else:
                found += 1
        return found > 0

    def _is_hidden(self, claim: Claim) -> bool:
        """Return whether a message that is not due is hidden; else it is sent again."""
        # Where SQS counts receives, hiding a message twice would bring it near its limit.
        return not self._in_place or is_fifo(claim.mailbox) or claim.received.count == 1

    def _move(self, claim: Claim) -> Copy | None:
        """Return the copy that replaces a message, or None to deliver it as it is."""
        received, envelope = claim.received, claim.received.envelope
        if received.count == 1 or is_fifo(claim.mailbox) or received.source_arn:
            return None  # what SQS moved here itself was counted where it was before
        if envelope.due is not None and received.first_at < envelope.due:
            # It was received too early and hidden, and SQS counted that. A new copy
            # has a count that only tells of workers.
            return Copy(0.0, structs.replace(envelope, due=None), claim.alone)
        if claim.stays or claim.alone or self._cache.recall(received.id) is not None:
            return None
        # Somebody had it and never said what became of it. Lost in company it may
        # have been a neighbour's fault: not charged.
        lost = received.count - 1
        suspect = structs.replace(
            envelope,
            attempts=envelope.attempts + lost,
            spared=envelope.spared + lost,
            first_at=envelope.first_at or received.first_at,
        )
        return Copy(0.0, suspect, alone=True)

    async def _deliveries(self, queue: Queue, claims: Sequence[Claim]) -> list[Delivery]:
        """Return deliveries; release messages whose bodies cannot be loaded."""
        made = await asyncio.gather(
            *(self._delivery(queue, claim) for claim in claims), return_exceptions=True
        )
        deliveries = [one for one in made if isinstance(one, Delivery)]
        troubles = [one for one in made if isinstance(one, BaseException)]
        if troubles:
            handed = {delivery.receipt for delivery in deliveries}
            rest = [claim for claim in claims if claim not in handed]
            await self._settler.put_back(queue.name, rest)
            if not deliveries:
                raise troubles[0]
        return deliveries

    async def _delivery(self, queue: Queue, claim: Claim) -> Delivery:
        received, envelope = claim.received, claim.received.envelope
        spared, history = envelope.spared, decoded(envelope.history)
        remembered = self._cache.recall(received.id)
        if remembered is not None:
            spared, history = remembered
        return Delivery(
            message=await self._sender.whole(received),
            mailbox=claim.mailbox,
            attempt=envelope.attempts + received.count - _hidden(received),
            spared=spared,
            suspect=claim.alone,
            position=received.id,
            first_received_at=envelope.first_at or received.first_at,
            history=history,
            receipt=claim,
            unsigned=received.unsigned,
            moved=await self._move_of(received),
            moves_to=self._moves_to(queue, claim),
        )

    def _moves_to(self, queue: Queue, claim: Claim) -> str:
        """Return the dead queue that SQS moves a message to, if this receive is the last."""
        redrive = redrive_of(queue.attributes)
        if not self._in_place or not claim.stays or redrive is None:
            return ""
        if claim.received.count < redrive.max_receive_count:
            return ""
        return queue.options.dead_queue or ""

    async def _move_of(self, received: Received) -> BrokerMove | None:
        """Return how SQS brought a message here by itself, or None."""
        if received.source_arn is None:
            return None
        name = received.source_arn.rpartition(":")[2]
        mailbox = self._registry.names.mailbox(name)
        if mailbox is None:
            return BrokerMove(source=name)
        source = await self._registry.find(mailbox)
        redrive = None if source is None else redrive_of(source.attributes)
        return BrokerMove(source=mailbox, receives=redrive.max_receive_count if redrive else 0)


def _sizes(queue: Queue, limit: int) -> list[int]:
    """Return the number of messages for each call."""
    if queue.fifo:
        # One at a time: while it is out, SQS keeps back the rest of its group.
        return [1] * min(limit, _FIFO_CALLS)
    whole, rest = divmod(limit, BATCH)
    return [BATCH] * whole + ([rest] if rest else [])


def _hidden(received: Received) -> int:
    """Return how many receives came too early and hid the message again."""
    due = received.envelope.due
    if due is None or received.first_at >= due:
        return 0
    early = (due - received.first_at).total_seconds()
    return min(ceil(early / LONGEST), received.count - 1)
