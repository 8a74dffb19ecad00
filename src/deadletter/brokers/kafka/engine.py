"""The Kafka engine: all mailboxes of a cluster, their counts and sweeps."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from msgspec import structs
from msgspec.structs import replace

from deadletter.core.errors import NotFound
from deadletter.core.message import Delivery
from deadletter.core.topology import check_creation, check_deletion, check_name, check_update
from deadletter.kit import MailboxEngine, micros
from deadletter.ports.broker import QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Clock, Durability, Features
from deadletter.ports.letters import Seal

from .address import Address, read_url
from .connection import CONSUMER, PRODUCER, Sender, client_settings, open_admin
from .group_member import GroupMember, Subscription
from .mailbox import KafkaSink, KafkaSource, Mailbox
from .partitions import Entry, Place, Progress
from .topics import Groups, OptionsTopic, Topics


class Counting:
    """Counts messages of mailboxes, from the ends and the progress of their partitions."""

    def __init__(self, address: Address, topics: Topics, groups: Groups, clock: Clock) -> None:
        self._address = address
        self._topics = topics
        self._groups = groups
        self._clock = clock

    async def count(
        self,
        queues: Sequence[QueueOptions],
        members: Mapping[str, GroupMember],
        partitions: Mapping[str, int],
    ) -> list[QueueInfo]:
        """
        Count mailboxes; our own members know their partitions exactly.

        A record that is requeued meanwhile may count twice, and is never left out: it
        arrives before the commit, so commits are read first and ends last.
        """
        for queue in queues:
            if queue.name in members:
                await members[queue.name].catch_up()
        places = {queue.name: self._places(queue.name, partitions) for queue in queues}
        everywhere = [place for theirs in places.values() for place in theirs]
        starts = await self._topics.starts(everywhere)
        worked: dict[Place, Progress | None] = {}
        while True:
            ends = await self._topics.ends(everywhere)
            found = {queue.name: _Found(micros(self._clock.now())) for queue in queues}
            others = {
                name: [
                    place
                    for place in theirs
                    if not found[name].saw(
                        members.get(name), place, ends[place], is_retry=self._is_retry(name, place)
                    )
                ]
                for name, theirs in places.items()
            }
            asking = {
                name: [place for place in theirs if place not in worked]
                for name, theirs in others.items()
            }
            if not any(asking.values()):
                break
            known = await self._worked(asking)
            asked = [place for theirs in asking.values() for place in theirs]
            worked |= {place: known.get(place) for place in asked}
        for name, theirs in others.items():
            for place in theirs:
                progress = worked[place] or Progress(starts[place])
                progress.skip(progress.base, starts[place])
                is_retry = self._is_retry(name, place)
                found[name].guess(progress, ends[place], is_retry=is_retry)
        return [found[queue.name].info(queue) for queue in queues]

    def _is_retry(self, mailbox: str, place: Place) -> bool:
        return place[0] == self._address.retry_topic(mailbox)

    def _places(self, mailbox: str, partitions: Mapping[str, int]) -> list[Place]:
        topics = self._address.topic(mailbox), self._address.retry_topic(mailbox)
        return [(topic, number) for topic in topics for number in range(partitions.get(topic, 0))]

    async def _worked(self, places: Mapping[str, Sequence[Place]]) -> dict[Place, Progress]:
        """Return the progress of the groups of these mailboxes."""
        by_group: dict[str, list[Place]] = {}
        for mailbox, theirs in places.items():
            for place in theirs:
                group = self._address.group_of(mailbox)
                if self._is_retry(mailbox, place):
                    group = self._address.retry_group_of(mailbox)
                by_group.setdefault(group, []).append(place)
        worked: dict[Place, Progress] = {}
        for group, asked in by_group.items():
            worked |= await self._groups.progress(group, asked)
        return worked


def present(info: QueueInfo) -> int:
    """Return the number of messages in a mailbox, in any state."""
    return info.ready + info.delayed + info.claimed + info.suspects


class _Found:
    """Counts of one mailbox, as they are collected."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._counts: Counter[str] = Counter()
        self._tally: Counter[str] = Counter()
        self._oldest: tuple[int, int, datetime] | None = None

    def saw(self, member: GroupMember | None, place: Place, end: int, *, is_retry: bool) -> bool:
        """Count a partition if it is assigned to us; False if it is not."""
        if member is None:
            return False
        with member.lock:
            assignment = member.backlog.assignments.get(place)
            if assignment is None:
                return False
            returned = set(member.backlog.returned)
            for entry in assignment.entries.values():
                self._see(entry, returned=entry in returned)
            self._counts["delayed" if is_retry else "ready"] += max(0, end - assignment.position)
            self._tally.update(assignment.progress.tally)
        return True

    def _see(self, entry: Entry, *, returned: bool) -> None:
        if entry.ended:
            return
        if entry.token is not None:
            self._counts["claimed"] += 1
        elif entry.trail.suspect or returned:
            self._counts["suspects"] += 1
        else:
            self._counts["ready" if entry.due <= self._now else "delayed"] += 1
            head = (entry.due, entry.seq, entry.message.sent_at)
            self._oldest = min(self._oldest or head, head)

    def guess(self, progress: Progress, end: int, *, is_retry: bool) -> None:
        """Count a partition of another member, or of none."""
        held = progress.claims
        self._counts["claimed"] += held
        waiting = max(0, progress.open_until(end) - held)
        self._counts["delayed" if is_retry else "ready"] += waiting
        self._tally.update(progress.tally)

    def info(self, options: QueueOptions) -> QueueInfo:
        counts = self._counts
        # Sent is not counted: it is what is present and what has left.
        sent = counts.total() + self._tally.total()
        return QueueInfo(
            options=options,
            ready=counts["ready"],
            delayed=counts["delayed"],
            claimed=counts["claimed"],
            suspects=counts["suspects"],
            oldest_at=None if self._oldest is None else self._oldest[2],
            tally={"sent": sent, **self._tally},
        )


async def sweep_mailbox(
    box: Mailbox, *, max_attempts: int, mortal: bool, limit: int, lease: float
) -> Swept:
    """Sweep a mailbox that this process is a member of."""
    member = await box.member()
    await box.requeue_stragglers(member)
    with member.lock:
        shortened = member.backlog.shorten(box.now())
    if shortened:
        member.wake()
    returned = await box.requeue_returned(member)
    overdue = await _take_back(box)
    if returned or overdue:
        await member.catch_up()  # with what was just requeued
    now = box.now()
    until = now + round(lease * 1e6)
    with member.lock:
        doomed = []
        if mortal:
            # Not an attempt, so it is not counted.
            for entry in list(member.backlog.doomed(now, max_attempts))[: max(0, limit)]:
                member.backlog.hold(entry, until, until - now, counted=False)
                doomed.append(entry.delivery(box.name, now))
        waiting = member.backlog.has_suspects(now)
    suspects = frozenset({box.name} if waiting else ())
    return Swept(
        sum(returned) + overdue,
        suspects,
        tuple(doomed),
        misdated=len(shortened),
        ahead=max(shortened, default=0) / 1e6,
    )


async def _take_back(box: Mailbox) -> int:
    """Turn claims of this process with an expired lease into suspects."""
    member = await box.member()
    now = box.now()
    with member.lock:
        overdue = member.backlog.overdue(now)
        for entry in overdue:
            if not entry.counted:  # claimed by a sweep that did not settle it
                member.backlog.put_back(entry)
        entries = [entry for entry in overdue if entry.counted]
        going = [(entry, entry.lost(now)) for entry in entries]
    if not entries:
        return 0
    await box.republish(member, going)
    await box.committed(member, entries)
    member.wake()
    return len(entries)


class KafkaBroker:
    """The topics of a cluster, as mailboxes."""

    def __init__(
        self,
        address: Address,
        features: Features,
        *,
        consumer: dict[str, Any],
        topics: Topics,
        sender: Sender,
        clock: Clock,
    ) -> None:
        self.features = features
        self.seal = Seal()
        self._address = address
        self._consumer = consumer
        self._topics = topics
        self._sender = sender
        self._clock = clock
        self._numbers = count(1)
        self._boxes: dict[str, Mailbox] = {}
        self._changing = asyncio.Lock()
        asking = {**consumer, "group.id": address.registry}
        self._options = OptionsTopic(address.registry, asking, topics=topics, sender=sender)
        self._counting = Counting(address, topics, Groups(consumer), clock)

    def source(self, mailbox: str) -> KafkaSource:
        """Return the source of a mailbox; a missing one is created on first use."""
        return KafkaSource(self.box(mailbox), self.features)

    def sink(self, mailbox: str) -> KafkaSink:
        """Return the sink of a mailbox; a missing one is created on first use."""
        return KafkaSink(self.box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """
        Create a mailbox; raises Conflict if it exists with other options.

        Two processes that change mailboxes at the same moment do not see each other:
        Kafka has no transaction for it.
        """
        async with self._changing:
            existing = await self._existing()
            check_creation(options, existing)
            await self.box(options.name).partitions()
            await self._options.set(options)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""
        async with self._changing:
            existing = await self._existing()
            check_update(options, existing)
            await self._options.set(options)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox; return the number of its messages."""
        async with self._changing:
            existing = await self._existing()
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            for user in check_deletion(name, existing, force=force):
                await self._options.set(structs.replace(existing[user], dead_queue=None))
            box = self.box(name)
            partitions = await self._topics.names()
            (counts,) = await self._counting.count([existing[name]], self._members(), partitions)
            await box.leave()
            await self._topics.delete([box.topic, box.retry_topic])
            await self._options.remove(name)
            return present(counts)

    async def queues(self) -> Sequence[QueueInfo]:
        """
        List all mailboxes by name: every topic but retry topics and internal ones.

        Suspects in partitions of a retry topic that another process works count as
        delayed.
        """
        existing = await self._existing()
        partitions = await self._topics.names()
        options = [existing[name] for name in sorted(existing)]
        return await self._counting.count(options, self._members(), partitions)

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Return None: Kafka has no delivery limits."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Requeue what lost workers held, and claim what is out of attempts or expired.

        Each member of a group sweeps its own partitions; those of a lost member are
        assigned to others.
        """
        options = await self._options.read()
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
                max_attempts=self._options.known(box.name).max_attempts,
                mortal=box.name not in dead_queues,
                limit=limit - len(doomed),
                lease=lease,
            )
            lost += found.lost
            misdated += found.misdated
            ahead = max(ahead, found.ahead)
            suspects |= found.suspects
            doomed += found.doomed
        return Swept(lost, frozenset(suspects), tuple(doomed), misdated=misdated, ahead=ahead)

    async def close(self) -> None:
        """Leave all groups."""
        await asyncio.gather(*(box.leave() for box in self._boxes.values()))

    def _members(self) -> dict[str, GroupMember]:
        return {name: box.present for name, box in self._boxes.items() if box.present is not None}

    def box(self, name: str) -> Mailbox:
        """Return the shared state of a mailbox."""
        if name not in self._boxes:
            check_name(name)
            self._boxes[name] = Mailbox(
                name,
                address=self._address,
                topics=self._topics,
                sender=self._sender,
                join=self._join,
                options=lambda: self._options.known(name),
                clock=self._clock,
                seal=self.seal,
            )
        return self._boxes[name]

    def _join(self, box: Mailbox) -> GroupMember:
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
        return GroupMember(
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
        options = await self._options.read(fresh=True)
        topics = await self._topics.names()
        retries = {self._address.retry.replace("{topic}", topic) for topic in topics}
        prefix = self._address.prefix
        names = [
            topic.removeprefix(prefix)
            for topic in topics
            if topic.startswith(prefix) and topic not in retries and topic != self._address.registry
        ]
        return {name: options.get(name) or QueueOptions(name=name) for name in names}


FEATURES: Final = Features(
    engine="kafka",
    durability=Durability.REPLICATED,  # where topics have more than one copy
    ordered=False,  # within a partition only
    keeps_letters=False,
    keeps_ledger=False,
)


_COPIES: Final = 3  # of a topic we create, if there are as many brokers

_LARGE_BATCHES: Final[dict[str, Any]] = {
    "message.max.bytes": 1_000_000_000,  # the limit of the topic counts
    "batch.size": 900_000,
}


class KafkaEngine(MailboxEngine):
    """Mailboxes on a Kafka cluster. It keeps no letters and no ledger."""

    def __init__(
        self, address: Address, admin: AdminClient, *, replication: int, clock: Clock
    ) -> None:
        copies = Durability.REPLICATED if replication > 1 else Durability.KILL_SAFE
        features = replace(FEATURES, durability=copies)
        client = client_settings(address)
        strategy = "range" if address.ordering == "key" else "cooperative-sticky"
        consumer = {**CONSUMER, "partition.assignment.strategy": strategy, **client}
        self._sender = Sender({**PRODUCER, **_LARGE_BATCHES, **client})
        self.mailboxes = KafkaBroker(
            address,
            features,
            consumer=consumer,
            topics=Topics(admin, replication=replication),
            sender=self._sender,
            clock=clock,
        )
        super().__init__(self.mailboxes, features)

    async def close(self) -> None:
        """Commit, leave the groups, and send what is under way."""
        await self.mailboxes.close()
        await self._sender.close()


async def connect(url: str, *, clock: Clock) -> KafkaEngine:
    """Open the engine of a URL, once a broker has answered."""
    address = read_url(url)
    admin, brokers = await open_admin(address)
    replication = address.replication or min(_COPIES, brokers)
    return KafkaEngine(address, admin, replication=replication, clock=clock)
