"""One queue: messages in as jobs, jobs out as deliveries."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from deadletter.backends._redis.box import Box
from deadletter.backends._redis.link import Argument, Link
from deadletter.backends._redis.sink import BoxSink
from deadletter.backends._redis.source import BoxSource
from deadletter.core.message import Delivery, Message

from .jobs import arguments, deliveries
from .registry import Registry
from .scripts import VERBS


class Queue(Box):
    """What source and sink of one queue share."""

    verbs = VERBS

    def __init__(self, link: Link, registry: Registry, name: str) -> None:
        keys, bells = registry.keys.queue(name), registry.keys.bells(name)
        super().__init__(link, registry, name, keys=keys, bells=bells)

    def deliveries(
        self, token: str, said: Sequence[Any], *, first: datetime | None
    ) -> list[Delivery]:
        """What a claim got, as the server said it."""
        return deliveries(self.name, token, said[0])


class BullSink(BoxSink):
    """The way into one queue."""

    def arguments(self, messages: Sequence[Message]) -> list[Argument]:
        """Every message as a job, one after the other."""
        return [
            part for message in messages for part in arguments(self.mailbox, message)
        ]


class BullSource(BoxSource):
    """Deliveries of one queue."""

    # A worker of BullMQ that dies may take a marker with it: it looks as often itself.
    longest: ClassVar[float] = 5.0
