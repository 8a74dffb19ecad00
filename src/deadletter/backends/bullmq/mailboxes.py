"""All queues on the server that we use: their counts, the way to each."""

from collections.abc import Sequence
from typing import Any

from deadletter.backends._redis.link import Link
from deadletter.backends._redis.mailboxes import Mailboxes
from deadletter.ports.broker import QueueInfo, QueueOptions
from deadletter.ports.features import Features

from .envelope import sent_at
from .jobs import added_at
from .queue import BullSink, BullSource, Queue
from .registry import Registry


class BullBroker(Mailboxes[Queue]):
    """The server's queues, behind one prefix."""

    def __init__(self, link: Link, registry: Registry, features: Features) -> None:
        super().__init__(
            link, lambda name: Queue(link, registry, name), registry, features
        )

    def source(self, mailbox: str) -> BullSource:
        """Deliveries of one queue, which is listed if it is not yet."""
        return BullSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> BullSink:
        """The way into one queue, which is listed if it is not yet."""
        return BullSink(self._box(mailbox))

    def info(self, options: QueueOptions, said: Sequence[Any]) -> QueueInfo:
        """What is in a queue; of the first in line, when it was sent."""
        ready, delayed, claimed, suspects, envelope, added = said
        return QueueInfo(
            options=options,
            ready=ready,
            delayed=delayed,
            claimed=claimed,
            suspects=suspects,
            oldest_at=sent_at(envelope) or added_at(added),
        )
