"""All queues on the server that we use: their counts, the way to each."""

from collections.abc import Sequence
from typing import Any

from deadletter.backends._redis.link import Argument, Link
from deadletter.backends._redis.mailboxes import Mailboxes
from deadletter.core.job_envelope import sent_at
from deadletter.ports.broker import Note, QueueInfo, QueueOptions
from deadletter.ports.features import Features

from .jobs import added_at
from .queue import BullSink, BullSource, Queue
from .registry import Registry
from .retention import Retention
from .scripts import NOTE


class BullBroker(Mailboxes[Queue]):
    """The server's queues, behind one prefix."""

    def __init__(
        self, link: Link, registry: Registry, features: Features, retention: Retention
    ) -> None:
        def new_queue(name: str) -> Queue:
            return Queue(link, registry, name, retention)

        super().__init__(link, new_queue, registry, features)

    def source(self, mailbox: str) -> BullSource:
        """Deliveries of one queue, which is listed if it is not yet."""
        return BullSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> BullSink:
        """The way into one queue, which is listed if it is not yet."""
        return BullSink(self._box(mailbox))

    async def note(self, mailbox: str, notes: Sequence[Note]) -> None:
        """Write progress and log lines of jobs that we still have."""
        words: list[Argument] = []
        for note in notes:
            kind, value = (
                ("log", note.line)
                if note.progress is None
                else ("progress", note.progress)
            )
            words += *note.delivery.receipt, kind, value or ""
        await self._box(mailbox).ask(NOTE, *words)

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
