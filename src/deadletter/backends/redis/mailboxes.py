"""All mailboxes on the server: their counts, the way to each."""

from collections.abc import Sequence
from typing import Any, Final

from deadletter.backends._redis.link import Link
from deadletter.backends._redis.mailboxes import Mailboxes
from deadletter.ports.broker import Fate, QueueInfo, QueueOptions
from deadletter.ports.features import Features

from .packing import sent_at
from .queue import Mailbox, RedisSink, RedisSource
from .registry import Registry

_COUNTS: Final = ("sent", *(fate.value for fate in Fate))


class RedisBroker(Mailboxes[Mailbox]):
    """The server's mailboxes, behind one prefix."""

    def __init__(self, link: Link, registry: Registry, features: Features) -> None:
        super().__init__(
            link, lambda name: Mailbox(link, registry, name), registry, features
        )

    def source(self, mailbox: str) -> RedisSource:
        """Deliveries of one mailbox, which is made if it is not there yet."""
        return RedisSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> RedisSink:
        """The way into one mailbox, which is made if it is not there yet."""
        return RedisSink(self._box(mailbox))

    async def ready(self, mailbox: str) -> int:
        """How many could be taken from a mailbox now."""
        box = self._box(mailbox)
        said = await box.ask(box.verbs.count)
        return int(said[0])

    async def reconnect(self) -> None:
        """Give up all connections for others."""
        await self._link.reconnect()

    def info(self, options: QueueOptions, said: Sequence[Any]) -> QueueInfo:
        """What is in a mailbox."""
        ready, delayed, claimed, suspects, head, pairs = said
        counts = {
            name.decode(): int(number)
            for name, number in zip(pairs[::2], pairs[1::2], strict=True)
            if name.decode() in _COUNTS
        }
        return QueueInfo(
            options=options,
            ready=ready,
            delayed=delayed,
            claimed=claimed,
            suspects=suspects,
            oldest_at=sent_at(head) if head else None,
            tally={"sent": 0, **counts},
        )
