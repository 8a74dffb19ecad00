"""Source and sink of one mailbox."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import structs

from deadletter.core.errors import BackendError, Refused
from deadletter.core.message import Delivery, Message
from deadletter.ports.broker import Settlement
from deadletter.ports.features import Clock, Features

from .connection import NoQueue, SomeRefused, SomeUnsent
from .message_format import envelope_of, is_fifo
from .receiver import Receiver
from .registry import QueueRegistry
from .sender import Sender
from .settler import Settler


class SqsSource:
    """Source of one mailbox."""

    def __init__(
        self,
        mailbox: str,
        features: Features,
        receiver: Receiver,
        settler: Settler,
        returning: "set[asyncio.Task[None]]",
    ) -> None:
        self.mailbox = mailbox
        self.features = features
        self._receiver = receiver
        self._settler = settler
        self._returning = returning  # what cancelled receives may have claimed

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        if limit < 1 or (alone and is_fifo(self.mailbox)):
            return []
        receiving = self._receiver.receive(
            self.mailbox, limit=1 if alone else limit, wait=wait, lease=lease, alone=alone
        )
        under_way = asyncio.ensure_future(receiving)
        try:
            return await asyncio.shield(under_way)
        except asyncio.CancelledError:
            # SQS may be delivering just now: release whatever arrives.
            task = asyncio.create_task(self._give_back(under_way))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)
            raise

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Delete or release deliveries; return for each whether it was still ours."""
        return await self._settler.settle(self.mailbox, settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Extend leases to `lease` seconds from now; return for each whether it is still ours."""
        return await self._settler.extend(self.mailbox, deliveries, lease)

    async def _give_back(self, under_way: "asyncio.Future[list[Delivery]]") -> None:
        try:
            claims = [delivery.receipt for delivery in await under_way]
            await self._settler.put_back(self.mailbox, claims)
        except BackendError:
            return  # they come back when their leases are over


class SqsSink:
    """Sink of one mailbox."""

    def __init__(self, mailbox: str, registry: QueueRegistry, sender: Sender, clock: Clock) -> None:
        self.mailbox = mailbox
        self._registry = registry
        self._sender = sender
        self._clock = clock

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Send messages; return when SQS has confirmed all of them.

        Raises before anything is sent if a message is invalid. If SQS accepts only
        some, `PartlySent` says which: sending those again doubles them, except in a
        FIFO queue within five minutes.
        """
        if not messages:
            return
        failures = await self._sent(messages, delay)
        if all(isinstance(failure, NoQueue) for failure in failures):
            self._registry.forget(self.mailbox)  # deleted meanwhile: create it again
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

    async def _sent(self, messages: Sequence[Message], delay: float) -> list[BackendError | None]:
        queue = await self._registry.get(self.mailbox)
        until = None
        if queue.options.expire_after is not None:
            until = self._clock.now() + timedelta(seconds=queue.options.expire_after)
        sending = [_expiring(message, until) for message in messages]
        entries = [
            await self._sender.fresh(queue, message, envelope_of(message), delay)
            for message in sending
        ]
        return await self._sender.send(queue, entries)


def _expiring(message: Message, until: datetime | None) -> Message:
    """Return the message, with the expiry of its mailbox if it has none."""
    if message.expires_at is not None or until is None:
        return message
    return structs.replace(message, expires_at=until)
