"""All mailboxes on the server: their options, their counts, the way to each."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import structs

from deadletter.core.errors import NotFound
from deadletter.core.message import Delivery
from deadletter.core.topology import (
    check_creation,
    check_deletion,
    check_name,
    check_update,
)
from deadletter.ports.broker import Fate, QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Features

from .lanes import tokens
from .link import Link
from .packing import deliveries, seconds, unpacked
from .queue import SLICE, Mailbox, RedisSink, RedisSource
from .registry import Listed, Registry
from .scripts import INFO, SWEEP

_COUNTS: Final = ("sent", *(fate.value for fate in Fate))


class RedisBroker:
    """The server's mailboxes, behind one prefix."""

    def __init__(self, link: Link, registry: Registry, features: Features) -> None:
        self.features = features
        self._link = link
        self._registry = registry
        self._tokens = tokens()
        self._boxes: dict[str, Mailbox] = {}

    def source(self, mailbox: str) -> RedisSource:
        """Deliveries of one mailbox, which is made if it is not there yet."""
        return RedisSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> RedisSink:
        """The way into one mailbox, which is made if it is not there yet."""
        return RedisSink(self._box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""

        def change(existing: Listed) -> Listed:
            check_creation(options, existing)
            return {options.name: options}

        await self._registry.change(change)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""

        def change(existing: Listed) -> Listed:
            check_update(options, existing)
            return {options.name: options}

        await self._registry.change(change)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""

        def change(existing: Listed) -> Listed:
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            users = check_deletion(name, existing, force=force)
            return {name: existing[name]} | {
                user: structs.replace(existing[user], dead_queue=None) for user in users
            }

        return await self._registry.leave(name, change)

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name."""
        listed = await self._registry.read()
        return [
            _info(options, await self._box(name).ask(INFO))
            for name, options in sorted(listed.items())
        ]

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """None: mailboxes here have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Take back what lost workers held, and claim what is past saving."""
        listed = await self._registry.read()
        dead_queues = {options.dead_queue for options in listed.values()}
        token, by = next(self._tokens), seconds(lease)
        lost, suspects = 0, set()
        doomed: list[Delivery] = []
        for name, options in listed.items():
            room = min(limit - len(doomed), SLICE)
            # A dead queue's messages neither expire nor run out of attempts.
            mortal = int(name not in dead_queues and room > 0)
            said = await self._box(name).ask(
                SWEEP, token, by, room, options.max_attempts, mortal
            )
            lost += said[0]
            if said[1]:
                suspects.add(name)
            if len(said) > 2:
                doomed += deliveries(name, token, said[2:], first=None)
        return Swept(lost, frozenset(suspects), tuple(doomed))

    def _box(self, name: str) -> Mailbox:
        if name not in self._boxes:
            check_name(name)
            self._boxes[name] = Mailbox(self._link, self._registry, name)
        return self._boxes[name]


def _info(options: QueueOptions, said: Sequence[Any]) -> QueueInfo:
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
        oldest_at=unpacked([head])[0].sent_at if head else None,
        tally={"sent": 0, **counts},
    )
