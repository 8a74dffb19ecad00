"""One mailbox: its topics, its source and its sink."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from msgspec import structs

from deadletter.core.errors import Refused
from deadletter.core.message import Delivery, Message
from deadletter.kit import micros, with_expiry
from deadletter.ports.broker import Acked, QueueOptions, Released, Settlement
from deadletter.ports.features import Clock, Features
from deadletter.ports.letters import Seal

from .address import Address
from .connection import Outgoing, Sender
from .group_member import GroupMember
from .partitions import Entry
from .records import Raw, Trail, to_record, with_spring, with_trail
from .topics import ROOM, Topics

_HISTORY: Final = 256 * 1024  # bytes of history in a record; the oldest are dropped first


class Mailbox:
    """State of one mailbox; its topics and its membership are created when needed."""

    def __init__(
        self,
        name: str,
        *,
        address: Address,
        topics: Topics,
        sender: Sender,
        join: Callable[["Mailbox"], GroupMember],
        options: Callable[[], QueueOptions],
        clock: Clock,
        seal: Seal,
    ) -> None:
        self.name = name
        self.topic = address.topic(name)
        self.retry_topic = address.retry_topic(name)
        self.present: GroupMember | None = None
        self._address = address
        self._topics = topics
        self._sender = sender
        self._join = join
        self._options = options
        self._clock = clock
        self._seal = seal
        self._opening = asyncio.Lock()

    def now(self) -> int:
        """Return the current time in microseconds."""
        return micros(self._clock.now())

    async def member(self) -> GroupMember:
        """Return our membership in the groups of this mailbox."""
        async with self._opening:
            if self.present is not None and not self.present.alive:
                await self.present.stop()
                self.present = None
            if self.present is None:
                await self.retry_partitions()
                self.present = self._join(self)
            member = self.present
        await member.joined()
        return member

    async def leave(self) -> None:
        """Leave the groups."""
        async with self._opening:
            member, self.present = self.present, None
            if member is not None:
                await member.stop()

    async def partitions(self) -> int:
        """Return the number of partitions of the topic; create it if missing."""
        if not self._address.create:
            return await self._topics.partitions(self.topic)
        return await self._topics.ensure(self.topic, self._address.partitions)

    async def retry_partitions(self) -> int:
        """Return the number of partitions of the retry topic; create it if missing."""
        partitions = await self.partitions()
        if not self._address.create:
            return await self._topics.partitions(self.retry_topic)
        # A record that fits the topic fits the retry topic with its story.
        limit = await self._topics.limit(self.topic) + ROOM
        config = {"max.message.bytes": str(limit)}
        return await self._topics.ensure(self.retry_topic, partitions, config)

    async def send(self, messages: Sequence[Message], *, delay: float) -> None:
        """Send messages; with a delay by way of the retry topic, where they wait."""
        expire_after = self._options().expire_after
        now = self._clock.now()
        if delay > 0:
            topic, partitions = self.retry_topic, await self.retry_partitions()
        else:
            topic, partitions = self.topic, await self.partitions()
        wait = round(max(0.0, delay) * 1e6)
        due = micros(now) + wait
        limit = await self._topics.limit(topic)
        records = []
        for message in with_expiry(messages, expire_after, now):
            raw = to_record(message)
            if self._address.dialect == "spring":
                raw = with_spring(raw, message, self._address.group)
            if delay > 0:
                trail, keys = Trail(due=due, wait=wait), self._seal.keys
                raw = with_trail(raw, trail, message, topic=topic, keys=keys)
            if raw.size > limit:
                self._topics.forget(topic)  # read the limit again next time
                raise Refused(
                    f"message {message.id!a} takes {raw.size} bytes with its headers,"
                    f" and {topic} allows {limit}: raise max.message.bytes there"
                )
            records.append(Outgoing(topic, raw, spread(message, partitions)))
        await self._sender.send(records)

    async def republish(self, member: GroupMember, going: Sequence[tuple[Entry, Trail]]) -> None:
        """Send entries round to the retry topic; once stored there, they end here."""
        if not going:
            return
        partitions = await self.retry_partitions()
        limit = await self._topics.limit(self.retry_topic)
        records = [
            Outgoing(
                self.retry_topic, self._fitting(entry, trail, limit), entry.origin[1] % partitions
            )
            for entry, trail in going
        ]
        await self._sender.send(records)
        with member.lock:
            for entry, _ in going:
                member.backlog.end(entry, None)

    async def requeue_returned(self, member: GroupMember) -> Sequence[bool]:
        """
        Requeue what previous owners had claimed; return for each whether it is lost.

        A previous owner that left in order has lost nothing.
        """
        with member.lock:
            returned = member.backlog.returned
            if not returned:
                return []
            member.backlog.returned = []
        now = self.now()
        lost = [not entry.assignment.progress.left for entry in returned]
        going = [
            (entry, entry.lost(now) if is_lost else entry.left(now))
            for entry, is_lost in zip(returned, lost, strict=True)
        ]
        try:
            await self.republish(member, going)
            await self.committed(member, returned)
        except BaseException:
            with member.lock:
                member.backlog.returned += [
                    entry for entry in returned if not (entry.ended or entry.assignment.gone)
                ]
            raise
        return lost

    async def requeue_stragglers(self, member: GroupMember) -> None:
        """Requeue records that wait for long at the end of the topic, if they block others."""
        with member.lock:
            entries = member.backlog.stragglers(self.retry_topic, self.now())
        if not entries:
            return
        try:
            await self.republish(member, [(entry, entry.waiting()) for entry in entries])
            await self.committed(member, entries)
        except BaseException:
            with member.lock:
                for entry in entries:
                    if not entry.ended:
                        member.backlog.put_back(entry)
            raise

    async def committed(self, member: GroupMember, entries: Sequence[Entry]) -> None:
        """
        Commit the end of entries.

        If it fails, the next commit includes them.
        """
        try:
            await member.commit({entry.assignment for entry in entries})
        finally:
            with member.lock:
                for entry in entries:
                    member.backlog.forget(entry)

    def _fitting(self, entry: Entry, trail: Trail, limit: int) -> Raw:
        """Return the record with its story, whose beginning is dropped if it is too long."""
        history = trail.history
        topic, keys = self.retry_topic, self._seal.keys
        while True:
            if len(history) <= _HISTORY:
                told = structs.replace(trail, history=history)
                raw = with_trail(entry.raw, told, entry.message, topic=topic, keys=keys)
                if raw.size <= limit:
                    return raw
                if not history:
                    raise Refused(
                        f"message {entry.message.id!a} takes {raw.size} bytes with our"
                        f" headers, and its retry topic allows {limit}: raise"
                        " max.message.bytes there"
                    )
            history = history.partition("\n")[2]


def spread(message: Message, partitions: int) -> int | None:
    """
    Return the partition of a message without a key: always the same for one id.

    None for a message with a key: the client chooses by the key.
    """
    if message.key is not None:
        return None
    return crc32(message.id.encode("utf-8", "surrogatepass")) % partitions


_FEW: Final = 10  # receivers of smaller batches get nothing counted ahead


class KafkaSink:
    """Sends messages to one mailbox."""

    def __init__(self, box: Mailbox) -> None:
        self.mailbox = box.name
        self._box = box

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Send messages; return once all in-sync replicas have them.

        Invalid messages are refused before any is sent. If the broker fails half-way,
        some are stored, and sending them again duplicates those.
        """
        if messages:
            await self._box.send(messages, delay=delay)


class KafkaSource:
    """Deliveries of one mailbox."""

    def __init__(self, box: Mailbox, features: Features) -> None:
        self.mailbox = box.name
        self.features = features
        self._box = box

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """
        Take up to `limit` deliveries, waiting up to `wait` seconds for the first.

        The first call joins the consumer group, however long that takes. A call without
        waiting asks the broker for records that were not read yet.
        """
        if limit < 1:
            return []
        member = await self._box.member()
        await self._box.requeue_returned(member)
        if wait <= 0:
            await member.catch_up()
            member.clear_error()
            await self._box.requeue_returned(member)
        limit = 1 if alone else limit
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            found = await self._claimed(member, limit, lease, alone=alone)
            left = deadline - loop.time()
            if found or left <= 0:
                return found
            await member.wait_for_change(min(left, self._until_due(member, alone=alone)))
            await self._box.requeue_returned(member)
            member.raise_error()

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Ack or release deliveries with one commit; return for each whether it was ours."""
        if not settlements:
            return []
        member = await self._box.member()
        now = self._box.now()
        seen: set[int] = set()
        entries: list[Entry | None] = []
        with member.lock:
            for settlement in settlements:
                entry = member.backlog.ours(settlement.delivery, now)
                entries.append(None if entry is None or id(entry) in seen else entry)
                seen.add(id(entry))
        await self._send_back(member, settlements, entries, now)
        with member.lock:
            for settlement, entry in zip(settlements, entries, strict=True):
                if entry is not None and isinstance(settlement, Acked):
                    member.backlog.end(entry, settlement.fate)
        return await self._told(member, entries)

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """
        Extend leases to `lease` seconds from now; return which are still ours.

        A commit proves it: the broker accepts it only from the owner of a partition.
        """
        if not deliveries:
            return []
        member = await self._box.member()
        now = self._box.now()
        until = now + round(lease * 1e6)
        with member.lock:
            entries = [member.backlog.ours(delivery, now) for delivery in deliveries]
        await member.commit({entry.assignment for entry in entries if entry is not None})
        with member.lock:
            for entry in entries:
                if entry is not None:
                    entry.leased, entry.lease = until, until - now
        return [entry is not None and not entry.assignment.gone for entry in entries]

    async def _claimed(
        self, member: GroupMember, limit: int, lease: float, *, alone: bool
    ) -> Sequence[Delivery]:
        while True:
            now = self._box.now()
            until = now + round(lease * 1e6)
            with member.lock:
                ready = [] if alone else member.backlog.take_ready(now, until, limit)
                ahead = not alone and member.counts_ahead  # keeps their order
                rest = 0 if ahead else limit - len(ready)
                fresh = member.backlog.claim(now, until, rest, alone=alone)
            entries = [*ready, *fresh]
            if entries or not ahead:
                break
            await member.until_counted()
        if len(entries) == limit > _FEW:
            member.count_ahead(limit)
        if fresh:
            try:
                await member.commit({entry.assignment for entry in fresh})
            except BaseException:
                # These deliveries reach nobody: undo their claims.
                with member.lock:
                    for entry in entries:
                        member.backlog.put_back(entry)
                member.wake()
                raise
            member.clear_error()
        with member.lock:
            return [
                entry.delivery(self.mailbox, now) for entry in entries if not entry.assignment.gone
            ]

    async def _send_back(
        self,
        member: GroupMember,
        settlements: Sequence[Settlement],
        entries: Sequence[Entry | None],
        now: int,
    ) -> None:
        """Send released entries to the retry topic before they end here."""
        going = []
        for settlement, entry in zip(settlements, entries, strict=True):
            if entry is None or entry.ended or not isinstance(settlement, Released):
                continue
            wait = max(0, round(settlement.delay * 1e6))
            due = now + wait
            if entry.message.expires_at is not None:
                due = min(due, micros(entry.message.expires_at))
            trail = entry.released(
                due, wait, history=settlement.history, charged=settlement.charged
            )
            going.append((entry, trail))
        await self._box.republish(member, going)

    async def _told(self, member: GroupMember, entries: Sequence[Entry | None]) -> list[bool]:
        ended = [entry for entry in entries if entry is not None]
        await member.commit_ended({entry.assignment for entry in ended})
        with member.lock:
            ours = [entry is not None and not entry.assignment.gone for entry in entries]
            for entry in ended:
                member.backlog.forget(entry)
        member.clear_error()
        return ours

    def _until_due(self, member: GroupMember, *, alone: bool) -> float:
        with member.lock:
            due = member.backlog.next_due(alone=alone)
        if due is None:
            return 60.0
        return max(0.001, (due - self._box.now()) / 1e6)
