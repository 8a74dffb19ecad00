"""All mailboxes of a cluster: their options, their counts, the way to each."""

import asyncio
from collections.abc import Sequence
from itertools import count
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
from deadletter.ports.signing import Seal
from deadletter.ports.time import Clock

from .address import Address
from .counting import Counting, present
from .groups import Groups
from .mailbox import Mailbox
from .member import Member, Subscription
from .producing import Producing
from .queue import KafkaSink, KafkaSource
from .registry import Registry
from .sweeping import sweep_mailbox
from .topics import Topics


class KafkaBroker:
    """The topics of a cluster, as mailboxes."""

    def __init__(
        self,
        address: Address,
        features: Features,
        *,
        consumer: dict[str, Any],
        topics: Topics,
        producing: Producing,
        clock: Clock,
    ) -> None:
        self.features = features
        self.seal = Seal()
        self._address = address
        self._consumer = consumer
        self._topics = topics
        self._producing = producing
        self._clock = clock
        self._numbers = count(1)
        self._boxes: dict[str, Mailbox] = {}
        self._changing = asyncio.Lock()
        asking = {**consumer, "group.id": address.registry}
        self._registry = Registry(
            address.registry, asking, topics=topics, producing=producing
        )
        self._counting = Counting(address, topics, Groups(consumer), clock)

    def source(self, mailbox: str) -> KafkaSource:
        """Deliveries of one mailbox, which is made if it is not there yet."""
        return KafkaSource(self.box(mailbox), self.features)

    def sink(self, mailbox: str) -> KafkaSink:
        """The way into one mailbox, which is made if it is not there yet."""
        return KafkaSink(self.box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """
        Make a mailbox. The same again is fine; with other options a Conflict.

        Two processes that create or change mailboxes at the same moment do not see
        each other: Kafka has no transaction over both.
        """
        async with self._changing:
            existing = await self._existing()
            check_creation(options, existing)
            await self.box(options.name).partitions()
            await self._registry.set(options)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""
        async with self._changing:
            existing = await self._existing()
            check_update(options, existing)
            await self._registry.set(options)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""
        async with self._changing:
            existing = await self._existing()
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            for user in check_deletion(name, existing, force=force):
                await self._registry.set(
                    structs.replace(existing[user], dead_queue=None)
                )
            box = self.box(name)
            partitions = await self._topics.names()
            (counts,) = await self._counting.count(
                [existing[name]], self._members(), partitions
            )
            await box.leave()
            await self._topics.delete([box.topic, box.retry_topic])
            await self._registry.remove(name)
            return present(counts)

    async def queues(self) -> Sequence[QueueInfo]:
        """
        All mailboxes, by name: every topic but the retry topics and the cluster's.

        Where another process works a partition of a retry topic, its records that
        wait for their time and its suspects are told apart by nobody: they count
        as delayed.
        """
        existing = await self._existing()
        partitions = await self._topics.names()
        options = [existing[name] for name in sorted(existing)]
        return await self._counting.count(options, self._members(), partitions)

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """None: mailboxes here have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Take back what lost workers held, and claim what is past saving.

        Of what this process has in hand: each member of a group looks after its
        own partitions, and those of a lost one are given to the others.
        """
        options = await self._registry.read()
        dead_queues = {known.dead_queue for known in options.values()}
        lost = misdated = 0
        ahead = 0.0
        suspects: set[str] = set()
        doomed: list[Delivery] = []
        for box in list(self._boxes.values()):
            if box.present is None:
                continue
            found = await sweep_mailbox(
                box,
                max_attempts=self._registry.known(box.name).max_attempts,
                mortal=box.name not in dead_queues,
                limit=limit - len(doomed),
                lease=lease,
            )
            lost += found.lost
            misdated += found.misdated
            ahead = max(ahead, found.ahead)
            suspects |= found.suspects
            doomed += found.doomed
        return Swept(
            lost, frozenset(suspects), tuple(doomed), misdated=misdated, ahead=ahead
        )

    async def close(self) -> None:
        """Leave all groups."""
        await asyncio.gather(*(box.leave() for box in self._boxes.values()))

    def _members(self) -> dict[str, Member]:
        return {
            name: box.present
            for name, box in self._boxes.items()
            if box.present is not None
        }

    def box(self, name: str) -> Mailbox:
        """What source, sink and sweep of a mailbox share."""
        if name not in self._boxes:
            check_name(name)
            self._boxes[name] = Mailbox(
                name,
                address=self._address,
                topics=self._topics,
                producing=self._producing,
                join=self._join,
                options=lambda: self._registry.known(name),
                clock=self._clock,
                seal=self.seal,
            )
        return self._boxes[name]

    def _join(self, box: Mailbox) -> Member:
        group = self._address.group_of(box.name)
        retry_group = self._address.retry_group_of(box.name)
        settings = {**self._consumer, "group.id": group}
        subscriptions = [Subscription((box.topic, box.retry_topic), settings)]
        if retry_group != group:
            again = {**self._consumer, "group.id": retry_group}
            subscriptions = [
                Subscription((box.topic,), settings),
                Subscription((box.retry_topic,), again),
            ]
        return Member(
            subscriptions,
            retry_topic=box.retry_topic,
            topics=self._topics,
            clock=self._clock,
            seal=self.seal,
            numbers=self._numbers,
            prefetch=self._address.prefetch,
            by_key=self._address.ordering == "key",
        )

    async def _existing(self) -> dict[str, QueueOptions]:
        options = await self._registry.read(fresh=True)
        topics = await self._topics.names()
        retries = {self._address.retry.replace("{topic}", topic) for topic in topics}
        prefix = self._address.prefix
        names = [
            topic.removeprefix(prefix)
            for topic in topics
            if topic.startswith(prefix)
            and topic not in retries
            and topic != self._address.registry
        ]
        return {name: options.get(name) or QueueOptions(name=name) for name in names}
