"""The RabbitMQ engine: the mailboxes that this process uses."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec import structs

from deadletter.brokers.amqp.address import read_url
from deadletter.core.errors import BackendError, ConfigError, Conflict, NotFound
from deadletter.core.topology import check_deletion, check_update, validate
from deadletter.ports.broker import Broker, Postman, QueueInfo, QueueOptions, Swept, Undertaker
from deadletter.ports.engine import Ledger
from deadletter.ports.features import Clock, Durability, Features
from deadletter.ports.letters import LetterStore, Seal

from .connection import Link, translating
from .inbox import Inbox
from .mailbox import Mailbox, RabbitSink, RabbitSource, Sender
from .management import Management
from .queues import Queues, check, suspects

FEATURES: Final = Features(
    engine="rabbitmq",
    durability=Durability.POWER_SAFE,  # quorum queues sync before they confirm
    exact_delay=False,
    sees_delayed=False,
    due_order=False,
    dooms=False,
    tallies=False,
    keeps_options=False,
    keeps_letters=False,
    keeps_ledger=False,
)


class RabbitBroker:
    """
    The mailboxes that this process uses.

    AMQP cannot list queues, and cannot store our options: both are known to this process
    only.
    """

    def __init__(self, link: Link, features: Features, clock: Clock) -> None:
        self.features = features
        self.seal = Seal()
        self._link = link
        self._clock = clock
        self._queues = Queues(link)
        port = link.address.management
        self._management = None if port is None else Management(link.address, port)
        self._sender = Sender(link, self._queues, self.seal)
        self._boxes: dict[str, Mailbox] = {}
        self._options: dict[str, QueueOptions] = {}

    def source(self, mailbox: str) -> RabbitSource:
        """Return the source of a mailbox; a missing one is created on first use."""
        return RabbitSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> RabbitSink:
        """Return the sink of a mailbox; a missing one is created on first use."""
        return RabbitSink(self._box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """Create a mailbox; raises Conflict if it exists with other options."""
        check(options.name)
        validate(options, self._options)
        known = self._options.get(options.name)
        if known not in (None, options, QueueOptions(name=options.name)):
            raise Conflict(f"queue {options.name} exists with other options: update it instead")
        with translating():
            await self._queues.mailbox(options.name)
        self._set(options)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options, for this process."""
        check_update(options, self._options)
        self._set(options)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox; return the number of its messages."""
        with translating():
            if await self._queues.count(name) is None:
                raise NotFound(f"there is no queue {name!a}")
        for user in check_deletion(name, self._options, force=force):
            self._set(structs.replace(self._options[user], dead_queue=None))
        box = self._box(name)
        out = box.inbox.unsettled  # the broker counts undelivered messages only
        gone = await self._queues.delete(name)
        box.expire_after = None
        box.inbox.close()
        del self._options[name]
        return gone + out

    async def queues(self) -> Sequence[QueueInfo]:
        """List the mailboxes that this process uses, by name."""
        return [await self._info(name) for name in sorted(self._options)]

    async def ready(self, mailbox: str) -> int:
        """Return the number of ready messages that are not delivered."""
        with translating():
            return await self._queues.count(mailbox) or 0

    async def reconnect(self) -> None:
        """End both connections; their deliveries go to others."""
        self._link.reconnect()

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """
        Return why the broker would drop a message before we give up.

        It counts lost deliveries only. Arguments of a queue are always visible, policies
        only if the URL names the management API.
        """
        check(mailbox)
        with translating():
            await self._queues.mailbox(mailbox)
        problem = self._queues.in_the_way(mailbox)
        if problem is None and self._management is not None:
            problem = await self._management.in_the_way(mailbox, attempts=attempts)
        return problem

    async def overruled(self) -> Sequence[str]:
        """List problems with policies for mailboxes of any process."""
        if self._management is None:
            raise ConfigError(
                "AMQP does not show a delivery-limit that a policy sets: look at"
                " `rabbitmqctl list_policies`, or add ?management=15672 to the URL, the"
                " port of the management API"
            )
        return await self._management.all_in_the_way()

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Turn claims of stuck workers of this process into suspects.

        The broker requeues what a dead process held. Nothing is doomed here: AMQP cannot
        look into a queue. Whoever receives an expired message, or a suspect out of
        attempts, buries it.
        """
        lost, found = 0, set()
        for name, box in list(self._boxes.items()):
            with translating():
                if box.idle:
                    await box.give_back()
                await box.forward()
                lost += await box.take_back()
                if box.inbox.channel and await self._queues.count(suspects(name)):
                    found.add(name)
        return Swept(lost, frozenset(found))

    async def close(self) -> None:
        """Release unclaimed deliveries."""
        for box in self._boxes.values():
            await box.give_back()

    async def _info(self, name: str) -> QueueInfo:
        box = self._box(name)
        with translating():
            await self._queues.mailbox(name)
            ready = await self._queues.count(name) or 0
            waiting = box.inbox.waiting
            delayed = [await self._queues.count(place) or 0 for place in self._queues.delayed(name)]
            suspected = 0
            if box.inbox.channel is not None:
                suspected = await self._queues.count(suspects(name)) or 0
        return QueueInfo(
            options=self._options[name],
            ready=ready + waiting,
            delayed=sum(delayed),
            claimed=len(box.inbox.claims),
            suspects=suspected,
        )

    def _set(self, options: QueueOptions) -> None:
        self._box(options.name).expire_after = options.expire_after
        self._options[options.name] = options

    def _box(self, name: str) -> Mailbox:
        if name not in self._boxes:
            check(name)
            self._boxes[name] = Mailbox(
                name,
                inbox=Inbox(name, self._link, self._queues, self.seal),
                queues=self._queues,
                sender=self._sender,
                clock=self._clock,
            )
        self._options.setdefault(name, QueueOptions(name=name))
        return self._boxes[name]


class RabbitEngine:
    """Mailboxes on one broker. It keeps neither letters nor ledger."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self.features = FEATURES
        self._mailboxes = RabbitBroker(link, FEATURES, clock)
        self.broker: Broker = self._mailboxes
        self.letters: LetterStore | None = None
        self.ledger: Ledger | None = None
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        self._link = link

    async def close(self) -> None:
        """Release unclaimed deliveries, and disconnect."""
        with suppress(BackendError):  # unreachable: the broker requeues everything
            await self._mailboxes.close()
        await self._link.close()


async def connect(url: str, *, clock: Clock) -> RabbitEngine:
    """Open the engine of a URL, once the broker accepted our login."""
    link = Link(read_url(url))
    await link.start()
    return RabbitEngine(link, clock)
