"""One mailbox on the broker: messages in, deliveries out."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from msgspec import Struct, structs

from deadletter.brokers.amqp.channel import Channel
from deadletter.brokers.amqp.frames import Content
from deadletter.core.message import Delivery, Message
from deadletter.kit import micros, with_expiry
from deadletter.ports.broker import Released, Settlement
from deadletter.ports.features import Clock, Features
from deadletter.ports.letters import Seal

from .connection import Link, Mail, QueuesMissing, translating
from .inbox import Claim, Inbox
from .messages import NEW, Story, packed
from .queues import LONGEST_DELAY, Queues, delay_bucket, suspects


class Outgoing(Struct, frozen=True, kw_only=True):
    """A message to send."""

    message: Message
    to: str  # a queue
    story: Story
    delay: float = 0.0  # seconds
    crc: int | None = None  # the checksum that the message did not match


class Sender:
    """
    Sends messages, through delay queues if they have to wait.

    A message cannot be changed in its queue. To update its story, a copy with the same id
    is sent, and then the original is acked. After a crash in between it comes twice.
    """

    def __init__(self, link: Link, queues: Queues, seal: Seal) -> None:
        self._link = link
        self._queues = queues
        self._seal = seal

    async def send(self, letters: Sequence[Outgoing], now: datetime) -> None:
        """Send messages; return when the broker has stored all of them."""
        with translating():
            mail = [
                await self._later(letter, now)
                if letter.delay > 0
                else self._now(letter, letter.story)
                for letter in letters
            ]
        try:
            await self._link.publish(mail)
        except QueuesMissing as nowhere:
            self._queues.forget(*nowhere.queues)
            raise

    async def _later(self, letter: Outgoing, now: datetime) -> Mail:
        message, story = letter.message, letter.story
        delay = letter.delay
        if message.expires_at is not None:
            # A worker has to receive it in time to bury it.
            delay = min(delay, max(0.0, (message.expires_at - now).total_seconds()))
        wait = ceil(delay * 1000)
        if not wait:
            return self._now(letter, story)
        left = max(0, wait - LONGEST_DELAY)
        story = structs.replace(story, copied=True, left=left * 1000)
        wait -= left
        place = await self._queues.delay(letter.to, delay_bucket(wait))
        keys, crc = self._seal.keys, letter.crc
        properties = packed(message, story, to=letter.to, keys=keys, wait=wait, crc=crc)
        return place, properties, message.body

    def _now(self, letter: Outgoing, story: Story) -> Mail:
        message, keys = letter.message, self._seal.keys
        properties = packed(message, story, to=letter.to, keys=keys, crc=letter.crc)
        return letter.to, properties, message.body


_CHECK: Final = 2.0  # seconds without a message before the consumer is checked
# Consumers of a queue that is deleted and created again at once get no notice, and
# nothing from the new one: so they get some time to notice.
_RECREATE: Final = 0.5
_SOON: Final = 1.0  # seconds: longer delays copy a corrupt message
_IDLE: Final = timedelta(seconds=60)


class Mailbox:
    """State that source and sink of one mailbox share."""

    def __init__(
        self, name: str, *, inbox: Inbox, queues: Queues, sender: Sender, clock: Clock
    ) -> None:
        self.name = name
        self.inbox = inbox
        self.queues = queues
        self.sender = sender
        self.clock = clock
        self.expire_after: float | None = None
        self.receiving = 0  # current calls of receive
        self.asked_at = clock.now()
        self._changed: set[bytes] = set()  # bodies that did not match lately

    @property
    def idle(self) -> bool:
        """Return whether prefetched messages wait although nothing was received for long."""
        quiet = self.clock.now() - self.asked_at
        return not self.receiving and quiet > _IDLE and self.inbox.waiting > 0

    async def rescue(self) -> None:
        """
        Send again what the broker may have dropped after an ack that was changed.

        What it has not dropped comes twice, one of them as a suspect.
        """
        unsure, self.inbox.unsure = self.inbox.unsure, []
        now = self.clock.now()
        letters = [
            Outgoing(
                message=one.message,
                to=suspects(self.name),
                story=story_of(one, spared=True),
                crc=one.receipt.crc,
            )
            if isinstance(one, Delivery)
            else self._forwarded(one, now)
            for one in unsure
        ]
        try:
            await self.sender.send(letters, now)
        except BaseException:
            self.inbox.unsure += unsure
            raise

    async def forward(self) -> None:
        """Send strays to their queues, then ack them here."""
        channel, strays = self.inbox.channel, self.inbox.strays
        if channel is None or not strays:
            return
        self.inbox.strays = []
        now = self.clock.now()
        letters = [self._forwarded(content, now) for content in strays]
        if any(letter.crc is not None for letter in letters):
            strays, letters = self._reread(channel, strays, letters)
        try:
            await self.sender.send(letters, now)
        except BaseException:
            if channel is self.inbox.channel:
                self.inbox.strays += strays
            raise
        self.inbox.forget(channel, [content.tag for content in strays])

    def _reread(
        self, channel: Channel, strays: Sequence[Content], letters: Sequence[Outgoing]
    ) -> tuple[list[Content], list[Outgoing]]:
        """
        Requeue messages that do not match their checksum.

        They may have been changed on the way, and a copy would be all that is left. What
        comes again with the same bytes is stored like that.
        """
        known, self._changed = self._changed, set()
        going: list[tuple[Content, Outgoing]] = []
        for content, letter in zip(strays, letters, strict=True):
            if letter.crc is None or content.body in known:
                going.append((content, letter))
            else:
                self._changed.add(content.body)
                self.inbox.put_back(channel, content.tag)
        return [content for content, _ in going], [letter for _, letter in going]

    async def take_back(self) -> int:
        """Turn claims with an expired lease into suspects; return their number."""
        now = self.clock.now()
        channel = self.inbox.channel
        overdue = [
            claim for claim in self.inbox.claims if not claim.settling and not claim.is_ours(now)
        ]
        if not overdue or channel is None:
            return 0
        for claim in overdue:
            claim.settling = True
        letters = [
            Outgoing(
                message=delivery.message,
                to=suspects(self.name),
                # Lost in company, it may have been a neighbour's fault: not charged.
                # Lost alone, it was its own.
                story=story_of(delivery, spared=not claim.alone),
                crc=claim.crc,
            )
            for claim in overdue
            if (delivery := claim.delivery) is not None
        ]
        try:
            await self.sender.send(letters, now)
        except BaseException:
            for claim in overdue:
                claim.settling = False
            raise
        self.inbox.let_go(overdue)
        self.inbox.forget(channel, [claim.tag for claim in overdue])
        return len(overdue)

    async def give_back(self) -> None:
        """Stop consuming, and send back unclaimed messages."""
        with translating():
            await self.inbox.stop()
            if self.inbox.unsure:
                await self.rescue()
            await self.forward()

    def _forwarded(self, content: Content, now: datetime) -> Outgoing:
        """Address a stray to its queue."""
        read = self.inbox.read(content, now, alone=content.is_answer)
        story, to = read.story, self.name
        delay = story.left / 1_000_000
        lost = max(read.lost, 1) if content.redelivered else 0
        if lost or content.is_answer:
            to = suspects(self.name)
        story = structs.replace(
            story,
            attempts=story.attempts + lost,
            # Among others it may have been a neighbour's fault; alone it was not.
            spared=story.spared + (0 if content.is_answer else lost),
            copied=True,
            left=0,
        )
        crc = None if read.is_whole else read.crc
        return Outgoing(message=read.message, to=to, story=story, delay=delay, crc=crc)


class RabbitSink:
    """Sends messages to one mailbox."""

    def __init__(self, box: Mailbox) -> None:
        self.mailbox = box.name
        self._box = box

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send messages; return once the broker has stored all of them."""
        if not messages:
            return
        box = self._box
        now = box.clock.now()
        letters = [
            Outgoing(message=message, to=box.name, story=NEW, delay=delay)
            for message in with_expiry(messages, box.expire_after, now)
        ]
        with translating():
            await box.queues.mailbox(box.name)
        try:
            await box.sender.send(letters, now)
        except QueuesMissing:  # the queue was deleted, and nothing has arrived
            await asyncio.sleep(_RECREATE)
            with translating():
                await box.queues.mailbox(box.name)
            await box.sender.send(letters, now)


class RabbitSource:
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
        with translating():
            if alone:
                now = self._box.clock.now()
                until = now + timedelta(seconds=lease)
                suspect = await self._box.inbox.take_alone(now, until)
                return [] if suspect is None else [suspect]
            self._box.receiving += 1
            try:
                return await self._receive(limit, wait, lease)
            finally:
                self._box.receiving -= 1
                self._box.asked_at = self._box.clock.now()

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Ack or release deliveries; return for each whether it was ours."""
        now = self._box.clock.now()
        mine = [self._claimed(settlement.delivery, now) for settlement in settlements]
        released = [
            s
            for claim, s in zip(mine, settlements, strict=True)
            if claim is not None and isinstance(s, Released) and not _comes_again(s)
        ]
        if released:
            try:
                await self._copy(released, now)
            except BaseException:
                for claim in mine:
                    if claim is not None:
                        claim.settling = False
                raise
        return self._forget(self._reread(mine, settlements))

    def _reread(
        self, mine: Sequence[Claim | None], settlements: Sequence[Settlement]
    ) -> Sequence[Claim | None]:
        """Requeue what arrived corrupt: the broker may have it intact."""
        left: list[Claim | None] = []
        for claim, settlement in zip(mine, settlements, strict=True):
            again = isinstance(settlement, Released) and _comes_again(settlement)
            if claim is not None and again:
                self._box.inbox.let_go([claim])
                self._box.inbox.put_back(claim.channel, claim.tag)
            left.append(None if again else claim)
        return left

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Extend leases to `lease` seconds from now; return which are still ours."""
        now = self._box.clock.now()
        until = now + timedelta(seconds=lease)
        claims = [self._ours(delivery, now) for delivery in deliveries]
        for claim in claims:
            if claim is not None:
                claim.until = until
        return [claim is not None for claim in claims]

    async def _receive(self, limit: int, wait: float, lease: float) -> Sequence[Delivery]:
        box, inbox = self._box, self._box.inbox
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            channel = await inbox.open(limit)
            if inbox.unsure:
                await box.rescue()
            if wait <= 0:
                await inbox.ready(channel, limit)
            if inbox.strays:
                await box.forward()
            now = box.clock.now()
            until = now + timedelta(seconds=lease)
            found = inbox.take(limit, now, until)
            left = deadline - loop.time()
            if found or left <= 0:
                return found
            if not await inbox.wait_for_delivery(min(left, _CHECK)):
                await inbox.check()

    async def _copy(self, released: Sequence[Released], now: datetime) -> None:
        box = self._box
        letters = [
            Outgoing(
                message=s.delivery.message,
                to=suspects(box.name) if _still_suspect(s) else box.name,
                story=story_of(s.delivery, spared=not s.charged, history=s.history),
                delay=s.delay,
                crc=s.delivery.receipt.crc,
            )
            for s in released
        ]
        await box.sender.send(letters, now)

    def _forget(self, mine: Sequence[Claim | None]) -> Sequence[bool]:
        inbox = self._box.inbox
        claims = [claim for claim in mine if claim is not None]
        inbox.let_go(claims)
        if not claims:
            return [False] * len(mine)
        channel = inbox.channel
        if channel is None:
            return [False] * len(mine)
        tags = [claim.tag for claim in claims if claim.channel is channel]
        inbox.forget(channel, tags)
        return [claim is not None and claim.channel is channel for claim in mine]

    def _claimed(self, delivery: Delivery, now: datetime) -> Claim | None:
        """Return the claim on a delivery, and mark it as being settled."""
        claim = self._ours(delivery, now)
        if claim is None or claim.settling:
            return None
        claim.settling = True
        return claim

    def _ours(self, delivery: Delivery, now: datetime) -> Claim | None:
        claim = delivery.receipt
        if not isinstance(claim, Claim) or claim not in self._box.inbox.claims:
            return None
        return claim if claim.is_ours(now) else None


def story_of(delivery: Delivery, *, spared: bool, history: str | None = None) -> Story:
    """Return the story that a copy of a delivery carries."""
    first_at = delivery.first_received_at
    return Story(
        attempts=delivery.attempt,
        spared=delivery.spared + spared,
        first_at=None if first_at is None else micros(first_at),
        history=delivery.history if history is None else history,
        copied=True,
    )


def _comes_again(released: Released) -> bool:
    """Tell whether a corrupt delivery is to be read again from the broker."""
    return released.delivery.corrupt and released.delay <= _SOON


def _still_suspect(released: Released) -> bool:
    # Its handler ran and its worker survived: the message is proven. A message that did
    # not run (uncharged, without a story) is not.
    unrun = not released.charged and released.history is None
    return released.delivery.suspect and unrun
