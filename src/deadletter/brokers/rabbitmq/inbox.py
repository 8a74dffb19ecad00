"""
Deliveries of one mailbox that the broker has sent to this process: waiting or claimed.

The prefetch follows the demand: the broker sends what is needed next, and no more. When
the channel closes, all deliveries here are void: the broker delivers them again.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from pamqp import commands as spec

from deadletter.brokers.amqp.channel import Channel
from deadletter.brokers.amqp.errors import Closed
from deadletter.brokers.amqp.frames import Content
from deadletter.core.errors import ConfigError
from deadletter.core.ids import CORRUPT
from deadletter.core.message import Delivery
from deadletter.kit import when
from deadletter.ports.letters import Seal

from .connection import Link
from .messages import Unpacked, unpacked
from .queues import Queues, suspects


class Claim:
    """
    The receipt of a delivery.

    A claim is valid while its channel is open and its lease lasts. The broker knows no
    leases: the channel fences a dead process, the lease a stuck worker of a living one.
    """

    __slots__ = ("alone", "channel", "crc", "delivery", "settling", "tag", "until")

    def __init__(
        self, channel: Channel, tag: int, until: datetime, *, alone: bool, crc: int | None = None
    ) -> None:
        self.channel = channel
        self.tag = tag
        self.until = until
        self.alone = alone
        self.crc = crc  # the checksum that the message did not match
        self.settling = False  # being settled: nobody else may
        self.delivery: Delivery | None = None

    def is_ours(self, now: datetime) -> bool:
        """Tell whether the lease lasts."""
        return now < self.until


_FEWEST: Final = 16
_MOST: Final = 65_535  # the limit of AMQP
_CONSUMER: Final = "dlq"
_PRECONDITION_FAILED: Final = 406


class Inbox:
    """The consumer of one mailbox, shared by all its sources in this process."""

    def __init__(self, mailbox: str, link: Link, queues: Queues, seal: Seal) -> None:
        self.mailbox = mailbox
        self._seal = seal
        self.claims: dict[Claim, None] = {}
        self.strays: list[Content] = []  # delivered here, but meant for another queue
        # Delivered, not settled, and perhaps dropped by the broker.
        self.unsure: list[Content | Delivery] = []
        self._link = link
        self._queues = queues
        self._channel: Channel | None = None
        self._lock = asyncio.Lock()
        self._bell = asyncio.Event()
        self._waiting: deque[Content] = deque()
        self._alone: deque[Content] = deque()
        self._unacked: dict[int, None] = {}  # tags, oldest first
        self._prefetch = 0
        self._generation = 0

    async def open(self, wanted: int) -> Channel:
        """Return the channel, with a consumer that may deliver `wanted` more."""
        needed = len(self._unacked) - len(self._waiting) + wanted
        channel = self.channel
        if channel is not None and needed <= self._prefetch:
            return channel
        # Opening continues if the caller is cancelled.
        opening = asyncio.ensure_future(self._open(needed))
        opening.add_done_callback(_ignore)
        return await asyncio.shield(opening)

    def take(self, limit: int, now: datetime, until: datetime) -> list[Delivery]:
        """Claim waiting deliveries; those for other queues become strays."""
        found: list[Delivery] = []
        channel, waiting = self.channel, self._waiting
        if channel is None:
            return found
        while waiting and len(found) < limit:
            content = waiting.popleft()
            read = self.read(content, now)
            if read.story.left:
                self.strays.append(content)
                continue
            crc = None if read.is_whole else read.crc
            claim = Claim(channel, content.tag, until, alone=False, crc=crc)
            found.append(self._claimed(claim, read, now, lost=0))
        return found

    async def take_alone(self, now: datetime, until: datetime) -> Delivery | None:
        """Claim one suspect, if there is any."""
        channel = await self.open(0)
        if not self._alone:
            place = await self._queues.suspects(self.mailbox)
            asking = asyncio.ensure_future(channel.call(spec.Basic.Get(queue=place)))
            asking.add_done_callback(self._got)
            await asyncio.shield(asking)
        if not self._alone or channel is not self._channel:
            return None
        content = self._alone.popleft()
        read = self.read(content, now, alone=True)
        crc = None if read.is_whole else read.crc
        claim = Claim(channel, content.tag, until, alone=True, crc=crc)
        lost = max(read.lost, 1) if content.redelivered else 0
        return self._claimed(claim, read, now, lost=lost)

    def read(self, content: Content, now: datetime, *, alone: bool = False) -> Unpacked:
        """Decode a delivery of the mailbox's queue, or of its suspects."""
        queue = suspects(self.mailbox) if alone else self.mailbox
        keys = self._seal.keys
        return unpacked(content.properties, content.body, now, mailbox=queue, keys=keys)

    async def ready(self, channel: Channel, limit: int) -> None:
        """Wait until messages that are ready now have been delivered, up to `limit`."""
        for _ in range(_FEWEST):
            if len(self._waiting) >= limit or channel.closed is not None:
                return
            before = len(self._waiting)
            counts = await self._counts(channel)
            if not counts.message_count and len(self._waiting) == before:
                return

    async def check(self) -> None:
        """
        Check that the consumer still exists, after a while without deliveries.

        The broker sends no notice if a queue was deleted and created again at once.
        """
        channel = self.channel
        if channel is None:
            return
        counts = await self._counts(channel)
        came = self._waiting or self.strays or self.claims
        if not counts.consumer_count or (counts.message_count and not came):
            channel.close()

    async def _counts(self, channel: Channel) -> spec.Queue.DeclareOk:
        """Return the counts of the queue; earlier deliveries have arrived by then."""
        asked = spec.Queue.Declare(queue=self.mailbox, passive=True)
        answer = await channel.call(asked)
        await channel.call(spec.Basic.Qos(prefetch_count=self._prefetch))
        assert isinstance(answer, spec.Queue.DeclareOk)
        return answer

    async def wait_for_delivery(self, timeout: float) -> bool:  # noqa: ASYNC109 -- not an error
        """Wait for a delivery or the end of the channel; False after `timeout` seconds."""
        if self._waiting or self.strays or self.channel is None:
            return True
        self._bell.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                return await self._bell.wait()
        return False

    def forget(self, channel: Channel, tags: Iterable[int]) -> bool:
        """Ack deliveries of this channel; False if it is closed."""
        if channel is not self._channel or channel.closed is not None:
            return False
        gone = set(tags)
        channel.ack(gone, self._unacked)
        for tag in gone:
            self._unacked.pop(tag, None)
        return True

    def put_back(self, channel: Channel, tag: int) -> None:
        """Requeue a delivery, to receive it again from the broker."""
        if channel is self._channel and channel.closed is None:
            channel.give_back([tag])
            self._unacked.pop(tag, None)

    def let_go(self, claims: Iterable[Claim]) -> None:
        """Remove claims that are settled or lost."""
        for claim in claims:
            self.claims.pop(claim, None)

    async def stop(self) -> None:
        """Cancel the consumer; unclaimed deliveries become strays."""
        channel = self.channel
        if channel is None or not self._prefetch:
            return
        self._prefetch = 0
        await channel.call(spec.Basic.Cancel(consumer_tag=self._tag()))
        self.strays += [*self._waiting, *self._alone]
        self._waiting.clear()
        self._alone.clear()

    def close(self) -> None:
        """Close the channel; the broker requeues claimed deliveries."""
        if self._channel is not None:
            self._channel.close()

    @property
    def unsettled(self) -> int:
        """Number of unsettled deliveries, claimed or not."""
        return len(self._unacked)

    @property
    def waiting(self) -> int:
        """Number of unclaimed deliveries."""
        return len(self._waiting)

    @property
    def channel(self) -> Channel | None:
        """The channel, if it is open."""
        channel = self._channel
        return None if channel is None or channel.closed is not None else channel

    async def _open(self, needed: int) -> Channel:
        async with self._lock:
            channel = self.channel or await self._reopened()
            if needed > self._prefetch:
                await self._consume(channel, needed)
            return channel

    async def _reopened(self) -> Channel:
        await self._queues.mailbox(self.mailbox)
        if problem := self._queues.in_the_way(self.mailbox):
            raise ConfigError(problem)
        await self._queues.suspects(self.mailbox)
        channel = await self._link.consuming()
        channel.on_deliver = self._delivered
        channel.on_cancelled = channel.close
        channel.on_closed.append(self._ended)
        self._channel = channel
        self._prefetch = 0
        return channel

    def _ended(self) -> None:
        """Void all deliveries: the channel is closed."""
        if self._channel is not None and has_wrong_ack(self._channel.closed):
            claimed = (claim.delivery for claim in self.claims)
            self.unsure += [*self.strays, *self._waiting, *self._alone]
            self.unsure += [delivery for delivery in claimed if delivery is not None]
        self._waiting.clear()
        self._alone.clear()
        self._unacked.clear()
        self.strays.clear()
        self.claims.clear()
        # A deleted queue may be the reason.
        self._queues.forget(self.mailbox, suspects(self.mailbox))
        self._bell.set()

    async def _consume(self, channel: Channel, needed: int) -> None:
        if self._prefetch:
            await channel.call(spec.Basic.Cancel(consumer_tag=self._tag()))
        prefetch = min(_MOST, max(_FEWEST, 1 << (needed - 1).bit_length()))
        self._generation += 1
        await channel.call(spec.Basic.Qos(prefetch_count=prefetch))
        await channel.call(spec.Basic.Consume(queue=self.mailbox, consumer_tag=self._tag()))
        self._prefetch = prefetch

    def _tag(self) -> str:
        return f"{_CONSUMER}-{self._generation}"

    def _delivered(self, content: Content) -> None:
        self._unacked[content.tag] = None
        if content.redelivered:
            self.strays.append(content)
        else:
            self._waiting.append(content)
        self._bell.set()

    def _got(self, asking: "asyncio.Future[Any]") -> None:
        """Keep a suspect that arrived, also if the caller is gone."""
        if asking.cancelled() or asking.exception() is not None:
            return
        content = asking.result()
        if isinstance(content, Content):
            self._unacked[content.tag] = None
            self._alone.append(content)

    def _claimed(self, claim: Claim, read: Unpacked, now: datetime, *, lost: int) -> Delivery:
        story = read.story
        first_at = now if story.first_at is None else when(story.first_at)
        delivery = claim.delivery = Delivery(
            message=read.message,
            mailbox=self.mailbox,
            attempt=story.attempts + lost + 1,
            spared=story.spared,
            suspect=claim.alone,
            first_received_at=first_at,
            history=story.history,
            receipt=claim,
            unsigned=read.unsigned,
            unreadable="" if read.is_whole else CORRUPT,
            corrupt=not read.is_whole,
        )
        self.claims[claim] = None
        return delivery


def has_wrong_ack(closed: Exception | None) -> bool:
    """
    Tell whether the broker closed a channel because of an unknown delivery tag.

    Then an earlier ack was changed on its way and acked other deliveries. The broker has
    dropped those, and does not deliver them again.
    """
    return (
        isinstance(closed, Closed)
        and closed.code == _PRECONDITION_FAILED
        and "unknown delivery tag" in closed.text
    )


def _ignore(opening: "asyncio.Future[Any]") -> None:
    # Retrieve the error; its waiters still get it.
    if not opening.cancelled():
        opening.exception()
