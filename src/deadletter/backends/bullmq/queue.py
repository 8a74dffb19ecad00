"""One queue: messages in as jobs, jobs out as deliveries."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from deadletter.backends._redis.box import Box
from deadletter.backends._redis.link import Argument, Link
from deadletter.backends._redis.settling import Settling
from deadletter.backends._redis.sink import BoxSink
from deadletter.backends._redis.source import BoxSource
from deadletter.core.message import Delivery, Message
from deadletter.ports.features import Features

from .jobs import Job, arguments, deliveries
from .registry import Registry
from .retention import Retention
from .schedulers import Ticks
from .scripts import VERBS


class Queue(Box):
    """What source and sink of one queue share."""

    verbs = VERBS

    def __init__(
        self, link: Link, registry: Registry, name: str, retention: Retention
    ) -> None:
        keys, bells = registry.keys.queue(name), registry.keys.bells(name)
        usual = retention.completed, retention.failed
        settling = Settling(self.ask, VERBS.settle, *usual, with_ends=True)
        super().__init__(
            link, registry, name, keys=keys, bells=bells, settling=settling
        )
        self.ticks = Ticks(self)
        self.worker = registry.keys.worker(name)

    def deliveries(
        self, token: str, said: Sequence[Any], *, first: datetime | None
    ) -> list[Delivery]:
        """What a claim got, as the server said it."""
        jobs = [Job(*job) for job in said[0]]
        self.ticks.note(jobs, first)
        return deliveries(self.name, token, jobs)


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

    def __init__(self, queue: Queue, features: Features) -> None:
        super().__init__(queue, features)
        self._queue = queue

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        self._queue.ticks.start()  # what could not be added before
        await self._queue.link.appear(self._queue.worker)
        return await super().receive(limit=limit, wait=wait, lease=lease, alone=alone)
