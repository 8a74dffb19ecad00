"""The NATS engine: all mailboxes behind one prefix."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import structs
from msgspec.structs import replace

from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.message import Delivery
from deadletter.core.topology import check_creation, check_deletion, check_name, check_update
from deadletter.kit import MailboxEngine
from deadletter.ports.broker import QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Clock, Durability, Features

from .address import Address, read_url
from .connection import Link, open_link
from .delivery_notes import Notes
from .errors import NO_JETSTREAM, NoResponder, RequestRejected
from .mailbox import Mailbox, NatsSink, NatsSource
from .streams import (
    Listed,
    Names,
    Registry,
    consumer_config,
    consumer_info,
    delete,
    gives_up,
    purge,
    stream_state,
    time_of,
)


class NatsBroker:
    """All mailboxes behind one prefix."""

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
        """Return the source of a mailbox; a missing one is created on first use."""
        return NatsSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> NatsSink:
        """Return the sink of a mailbox; a missing one is created on first use."""
        return NatsSink(self._box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """Create a mailbox; raises Conflict if it exists with other options."""

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
        """Delete a mailbox; return the number of its messages."""

        def change(existing: Listed) -> Listed:
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            users = check_deletion(name, existing, force=force)
            detached = {user: structs.replace(existing[user], dead_queue=None) for user in users}
            return {n: o for n, o in {**existing, **detached}.items() if n != name}

        await self._registry.change(change)
        box = self._box(name)
        purged = await delete(self._link, box.place)
        await purge(self._link, self._names.book, f"{box.place.notes}.*")
        box.leave()
        return purged

    async def queues(self) -> Sequence[QueueInfo]:
        """List all mailboxes by name."""
        listed = await self._registry.read()
        return [await self._info(options) for _, options in sorted(listed.items())]

    async def ready(self, mailbox: str) -> int:
        """Return the number of messages that can be received now."""
        consumer = await consumer_info(self._link, self._box(mailbox).place)
        if consumer is None or consumer.get("paused"):
            return 0
        with self._link.reading():
            return int(consumer["num_pending"])

    async def reconnect(self) -> None:
        """Replace the connection."""
        self._link.renew()

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """
        Return why the server would stop delivering a message before we give up.

        It counts every delivery, also those that are not attempts, so any limit of the
        consumer is too low.
        """
        place = self._box(mailbox).place
        config = await consumer_config(self._link, place)
        return None if config is None else gives_up(config, place)

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Report suspects that were found here, and claim those out of attempts or expired.

        The server delivers again what lost workers held: receiving finds suspects, and
        expired messages.
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
        """Release the suspects of all mailboxes."""
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
            delayed=0,  # the server counts them as claimed
            claimed=max(0, claimed),
            suspects=suspects,
            oldest_at=oldest_at,
        )


async def _doomed(box: Mailbox, options: QueueOptions, room: int, lease: float) -> list[Delivery]:
    """Claim suspects that are out of attempts or expired."""
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
    return time_of(str(state["first_ts"])).replace(microsecond=0)


FEATURES: Final = Features(
    engine="nats",
    durability=Durability.KILL_SAFE,  # replicated where streams are
    fences=False,  # the server accepts an ack from any previous owner
    sees_lost=False,
    sees_delayed=False,
    due_order=False,
    dooms=False,
    tallies=False,
    dedupes=True,
    keeps_letters=False,
    keeps_ledger=False,
)


class NatsEngine(MailboxEngine):
    """Mailboxes on a server; no office and no ledger."""

    def __init__(self, link: Link, address: Address, registry: Registry, *, clock: Clock) -> None:
        names = _names(address)
        # By default the server syncs to disk seldom.
        durability = Durability.KILL_SAFE
        if address.replicas > 1:
            durability = Durability.REPLICATED
        features = replace(FEATURES, durability=durability)
        self._link = link
        self._broker = NatsBroker(
            link, names, registry, features, clock=clock, replicas=address.replicas
        )
        super().__init__(self._broker, features)

    async def close(self) -> None:
        """Finish background tasks, release suspects, and disconnect."""
        await self._broker.close()
        await self._link.close()


async def connect(url: str, *, clock: Clock, second: float = 1.0) -> NatsEngine:
    """Open the engine of a URL; `second` is the length of a second of leases."""
    address = read_url(url)
    link = await open_link(address.login, second=second)
    try:
        return await _opened(link, address, clock)
    except BaseException:
        await link.close()
        raise


async def _opened(link: Link, address: Address, clock: Clock) -> NatsEngine:
    names = _names(address)
    registry = Registry(link, names, replicas=address.replicas, clock=clock)
    try:
        await registry.make_book()
    except NoResponder as error:
        raise ConfigError(
            f"{address.login.where} has no JetStream: start the server with -js, or"
            " enable it for our account"
        ) from error
    except RequestRejected as error:
        if error.code in NO_JETSTREAM:
            raise ConfigError(str(error)) from error
        raise
    return NatsEngine(link, address, registry, clock=clock)


def _names(address: Address) -> Names:
    return Names(address.prefix, address.stream, address.consumer)
