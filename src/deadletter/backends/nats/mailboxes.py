"""All mailboxes on the server: their options, their counts, the way to each."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from deadletter.core.errors import NotFound
from deadletter.core.message import Delivery
from deadletter.core.topology import (
    check_creation,
    check_deletion,
    check_name,
    check_update,
)
from deadletter.ports.broker import QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Features
from deadletter.ports.time import Clock

from .link import Link
from .mailbox import Mailbox
from .names import Names
from .notes import Notes
from .queue import NatsSink, NatsSource
from .registry import Listed, Registry
from .streams import (
    consumer_config,
    consumer_info,
    delete,
    gives_up,
    purge,
    stream_state,
)


class NatsBroker:
    """The server's mailboxes, behind one prefix."""

    def __init__(
        self,
        link: Link,
        names: Names,
        registry: Registry,
        features: Features,
        *,
        clock: Clock,
        replicas: int,
    ) -> None:
        self.features = features
        self._link = link
        self._names = names
        self._registry = registry
        self._clock = clock
        self._replicas = replicas
        self._boxes: dict[str, Mailbox] = {}

    def source(self, mailbox: str) -> NatsSource:
        """Deliveries of one mailbox, which is made if it is not there yet."""
        return NatsSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> NatsSink:
        """The way into one mailbox, which is made if it is not there yet."""
        return NatsSink(self._box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""

        def change(existing: Listed) -> Listed:
            check_creation(options, existing)
            return {**existing, options.name: options}

        await self._registry.change(change)
        await self._box(options.name).make()

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""

        def change(existing: Listed) -> Listed:
            check_update(options, existing)
            return {**existing, options.name: options}

        await self._registry.change(change)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""

        def change(existing: Listed) -> Listed:
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            users = check_deletion(name, existing, force=force)
            detached = {
                user: structs.replace(existing[user], dead_queue=None) for user in users
            }
            return {n: o for n, o in {**existing, **detached}.items() if n != name}

        await self._registry.change(change)
        box = self._box(name)
        purged = await delete(self._link, box.place)
        await purge(self._link, self._names.book, f"{box.place.notes}.*")
        box.leave()
        return purged

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name."""
        listed = await self._registry.read()
        return [await self._info(options) for _, options in sorted(listed.items())]

    async def ready(self, mailbox: str) -> int:
        """How many could be taken from a mailbox now."""
        consumer = await consumer_info(self._link, self._box(mailbox).place)
        if consumer is None or consumer.get("paused"):
            return 0
        with self._link.reading():
            return int(consumer["num_pending"])

    async def reconnect(self) -> None:
        """Give up the connection for another one."""
        self._link.renew()

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """
        Why the server would stop delivering a message that is still tried.

        It counts every delivery, also those that are no attempts, so any limit of
        its own is too few.
        """
        place = self._box(mailbox).place
        config = await consumer_config(self._link, place)
        return None if config is None else gives_up(config, place)

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Say which suspects were found here, and claim those past saving.

        The server gives back by itself what lost workers held, to whoever fetches
        next: suspects are found by receiving, and so is what has expired.
        """
        lost, waiting = 0, set()
        doomed: list[Delivery] = []
        listed: Listed = {}
        if any(box.aside for box in self._boxes.values()):
            listed = await self._registry.read()
        dead_queues = {options.dead_queue for options in listed.values()}
        for name, box in self._boxes.items():
            lost += box.lost
            box.lost = 0
            if name in listed and name not in dead_queues:
                room = limit - len(doomed)
                doomed += await _doomed(box, listed[name], room, lease)
            if box.suspects():
                waiting.add(name)
        return Swept(lost, frozenset(waiting), tuple(doomed))

    async def close(self) -> None:
        """Give back what is set aside."""
        for box in self._boxes.values():
            await box.close()

    def _box(self, name: str) -> Mailbox:
        if name not in self._boxes:
            check_name(name)
            place = self._names.place(name)
            self._boxes[name] = Mailbox(
                name,
                place,
                link=self._link,
                registry=self._registry,
                notes=Notes(self._link, self._names.book, place),
                clock=self._clock,
                replicas=self._replicas,
            )
        return self._boxes[name]

    async def _info(self, options: QueueOptions) -> QueueInfo:
        box = self._box(options.name)
        state = await stream_state(self._link, box.place) or {}
        consumer = await consumer_info(self._link, box.place)
        suspects = len(box.suspects())
        with self._link.reading():
            if consumer is None:
                ready, claimed = _present(state), 0
            else:
                ready = int(consumer["num_pending"])
                claimed = int(consumer["num_ack_pending"]) - suspects
            oldest_at = _oldest(state) if ready and box.place.own else None
        return QueueInfo(
            options=options,
            ready=ready,
            delayed=0,  # the server does not tell them from those that are claimed
            claimed=max(0, claimed),
            suspects=suspects,
            oldest_at=oldest_at,
        )


async def _doomed(
    box: Mailbox, options: QueueOptions, room: int, lease: float
) -> list[Delivery]:
    """Claim those set aside that nobody should try any more."""
    now, found = box.clock.now(), []
    limit = options.max_attempts
    for claim in box.suspects()[: max(0, room)]:
        expires_at = claim.arrival.message.expires_at
        charged = claim.note.attempts - claim.note.spared
        if (expires_at is None or expires_at > now) and not 0 < limit <= charged:
            continue
        await box.make_consumer(lease)
        await box.renew([claim], lease)
        del box.aside[claim.arrival.seq]
        box.claims[claim.arrival.seq] = claim
        # Not an attempt, so none is counted.
        found.append(claim.delivery(box.name, now, begun=0))
    return found


def _present(state: dict[str, Any]) -> int:
    by_subject: dict[str, int] = state.get("subjects") or {}
    return sum(by_subject.values())


def _oldest(state: dict[str, Any]) -> datetime:
    text = str(state["first_ts"])  # with up to nine digits of a second
    return datetime.fromisoformat(text[:19] + "+00:00")
