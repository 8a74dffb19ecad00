"""All mailboxes that this process knows: their options, the way to each."""

from collections.abc import Sequence

from msgspec import structs

from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.topology import check_deletion, check_update, validate
from deadletter.ports.broker import QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Features
from deadletter.ports.signing import Seal
from deadletter.ports.time import Clock

from .inbox import Inbox
from .link import Link, in_our_words
from .management import Management
from .places import Places, check, suspects
from .post import Post
from .queue import Mailbox, RabbitSink, RabbitSource


class RabbitBroker:
    """
    The broker's mailboxes, as far as this process has to do with them.

    AMQP cannot list queues, and has no place for our options: both are what this
    process was told.
    """

    def __init__(self, link: Link, features: Features, clock: Clock) -> None:
        self.features = features
        self.seal = Seal()
        self._link = link
        self._clock = clock
        self._places = Places(link)
        port = link.address.management
        self._management = None if port is None else Management(link.address, port)
        self._post = Post(link, self._places, self.seal)
        self._boxes: dict[str, Mailbox] = {}
        self._options: dict[str, QueueOptions] = {}

    def source(self, mailbox: str) -> RabbitSource:
        """Deliveries of one mailbox, which is made if it is not there yet."""
        return RabbitSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> RabbitSink:
        """The way into one mailbox, which is made if it is not there yet."""
        return RabbitSink(self._box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""
        check(options.name)
        validate(options, self._options)
        known = self._options.get(options.name)
        if known not in (None, options, QueueOptions(name=options.name)):
            raise Conflict(
                f"queue {options.name} exists with other options: update it instead"
            )
        with in_our_words():
            await self._places.mailbox(options.name)
        self._set(options)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options, for this process."""
        check_update(options, self._options)
        self._set(options)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""
        with in_our_words():
            if await self._places.count(name) is None:
                raise NotFound(f"there is no queue {name!a}")
        for user in check_deletion(name, self._options, force=force):
            self._set(structs.replace(self._options[user], dead_queue=None))
        box = self._box(name)
        out = box.inbox.unsettled  # the broker counts only what it has not sent out
        gone = await self._places.delete(name)
        box.expire_after = None
        box.inbox.close()
        del self._options[name]
        return gone + out

    async def queues(self) -> Sequence[QueueInfo]:
        """The mailboxes this process has to do with, by name."""
        return [await self._info(name) for name in sorted(self._options)]

    async def ready(self, mailbox: str) -> int:
        """How many the broker has ready and has not sent to anybody."""
        with in_our_words():
            return await self._places.count(mailbox) or 0

    async def reconnect(self) -> None:
        """End both connections; what came by them is somebody else's then."""
        self._link.reconnect()

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """
        Why the broker would take a message away while it is still tried.

        It counts only deliveries that were lost. What a queue was declared with is
        always seen, what policies say only where the management API is named.
        """
        check(mailbox)
        with in_our_words():
            await self._places.mailbox(mailbox)
        problem = self._places.in_the_way(mailbox)
        if problem is None and self._management is not None:
            problem = await self._management.in_the_way(mailbox, attempts=attempts)
        return problem

    async def overruled(self) -> Sequence[str]:
        """Why policies get in the way of mailboxes, of this process or another."""
        if self._management is None:
            raise ConfigError(
                "A delivery-limit that a policy sets cannot be seen by AMQP: look at"
                " `rabbitmqctl list_policies`, or add ?management=15672 to the URL, the"
                " port of the management API"
            )
        return await self._management.all_in_the_way()

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Make suspects of what stuck workers in this process hold.

        What a process held that is gone, its connection has given back already.
        Nothing is doomed here: AMQP cannot look into a queue. Whoever receives what
        has expired, or a suspect out of attempts, buries it.
        """
        lost, found = 0, set()
        for name, box in list(self._boxes.items()):
            with in_our_words():
                if box.idle:
                    await box.give_back()
                await box.forward()
                lost += await box.take_back()
                if box.inbox.channel and await self._places.count(suspects(name)):
                    found.add(name)
        return Swept(lost, frozenset(found))

    async def close(self) -> None:
        """Give back what came and nobody claimed."""
        for box in self._boxes.values():
            await box.give_back()

    async def _info(self, name: str) -> QueueInfo:
        box = self._box(name)
        with in_our_words():
            await self._places.mailbox(name)
            ready = await self._places.count(name) or 0
            waiting = box.inbox.waiting
            delayed = [
                await self._places.count(place) or 0
                for place in self._places.delayed(name)
            ]
            suspected = 0
            if box.inbox.channel is not None:
                suspected = await self._places.count(suspects(name)) or 0
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
                inbox=Inbox(name, self._link, self._places, self.seal),
                places=self._places,
                post=self._post,
                clock=self._clock,
            )
        self._options.setdefault(name, QueueOptions(name=name))
        return self._boxes[name]
