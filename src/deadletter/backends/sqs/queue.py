"""One mailbox: receive, settle, send."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import structs

from deadletter.core.errors import BackendError, Refused
from deadletter.core.message import Delivery, Message
from deadletter.ports.broker import Settlement
from deadletter.ports.features import Features
from deadletter.ports.time import Clock

from .errors import NoQueue, SomeRefused, SomeUnsent
from .names import is_fifo
from .post import Post
from .receiving import Receiving
from .registry import Registry
from .settling import Settling
from .wire import slip_of


class SqsSource:
    """Deliveries of one mailbox."""

    def __init__(
        self,
        mailbox: str,
        features: Features,
        receiving: Receiving,
        settling: Settling,
        returning: "set[asyncio.Task[None]]",
    ) -> None:
        self.mailbox = mailbox
        self.features = features
        self._receiving = receiving
        self._settling = settling
        self._returning = returning  # what cancelled receives may have claimed

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        if limit < 1 or (alone and is_fifo(self.mailbox)):
            return []
        receiving = self._receiving.receive(
            self.mailbox,
            limit=1 if alone else limit,
            wait=wait,
            lease=lease,
            alone=alone,
        )
        under_way = asyncio.ensure_future(receiving)
        try:
            return await asyncio.shield(under_way)
        except asyncio.CancelledError:
            # SQS may be handing over just now: whatever comes is put back.
            task = asyncio.create_task(self._give_back(under_way))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)
            raise

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Forget or hand back; says for each if it was still ours."""
        return await self._settling.settle(self.mailbox, settlements)

    async def extend(
        self, deliveries: Sequence[Delivery], *, lease: float
    ) -> Sequence[bool]:
        """Keep deliveries ours for `lease` seconds from now; says which still are."""
        return await self._settling.extend(self.mailbox, deliveries, lease)

    async def _give_back(self, under_way: "asyncio.Future[list[Delivery]]") -> None:
        try:
            claims = [delivery.receipt for delivery in await under_way]
            await self._settling.put_back(self.mailbox, claims)
        except BackendError:
            return  # they come back when their leases are over


class SqsSink:
    """The way into one mailbox."""

    def __init__(
        self, mailbox: str, registry: Registry, post: Post, clock: Clock
    ) -> None:
        self.mailbox = mailbox
        self._registry = registry
        self._post = post
        self._clock = clock

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Send all of them; returns once SQS has them.

        What cannot be sent at all is refused before any is sent. When SQS takes
        only some it is said how many: those are there, and sending again doubles
        them, except in a FIFO queue within five minutes.
        """
        if not messages:
            return
        failures = await self._sent(messages, delay)
        if all(isinstance(failure, NoQueue) for failure in failures):
            self._registry.forget(self.mailbox)  # deleted under us: made anew
            failures = await self._sent(messages, delay)
        failed = {n: failure for n, failure in enumerate(failures) if failure}
        if not failed:
            return
        if len(failed) == len(messages) == 1:
            raise failed[0]
        refused = {n: why for n, why in failed.items() if isinstance(why, Refused)}
        others = (why for why in failed.values() if not isinstance(why, Refused))
        cause = next(others, None)
        sent = set(range(len(messages))) - failed.keys()
        first = next(iter(failed.values()))
        told = f"{len(sent)} of {len(messages)} messages were sent, then: {first}"
        raise (SomeRefused if cause is None else SomeUnsent)(
            told if sent else str(first), sent=sent, refused=refused, cause=cause
        ) from first

    async def _sent(
        self, messages: Sequence[Message], delay: float
    ) -> list[BackendError | None]:
        queue = await self._registry.get(self.mailbox)
        until = None
        if queue.options.expire_after is not None:
            until = self._clock.now() + timedelta(seconds=queue.options.expire_after)
        sending = [_expiring(message, until) for message in messages]
        entries = [
            await self._post.fresh(queue, message, slip_of(message), delay)
            for message in sending
        ]
        return await self._post.send(queue, entries)


def _expiring(message: Message, until: datetime | None) -> Message:
    """The message with the expiry its mailbox gives it, if it has none itself."""
    if message.expires_at is not None or until is None:
        return message
    return structs.replace(message, expires_at=until)
