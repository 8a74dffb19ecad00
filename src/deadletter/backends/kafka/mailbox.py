"""What source, sink and sweep of one mailbox share: its topics and our membership."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from msgspec import structs

from deadletter.core.errors import Refused
from deadletter.core.message import Message
from deadletter.ports.broker import QueueOptions
from deadletter.ports.signing import Seal
from deadletter.ports.time import Clock

from .address import Address
from .member import Member
from .producing import Outgoing, Producing
from .rows import Row
from .spring import with_spring
from .topics import ROOM, Topics
from .wire import Raw, Trail, micros, to_record, when, with_trail

_HISTORY: Final = 256 * 1024  # bytes of it that travel; the oldest go first


class Mailbox:
    """One mailbox. Its topics are made, and its group joined, when first needed."""

    def __init__(
        self,
        name: str,
        *,
        address: Address,
        topics: Topics,
        producing: Producing,
        join: Callable[["Mailbox"], Member],
        options: Callable[[], QueueOptions],
        clock: Clock,
        seal: Seal,
    ) -> None:
        self.name = name
        self.topic = address.topic(name)
        self.retry_topic = address.retry_topic(name)
        self.present: Member | None = None
        self._address = address
        self._topics = topics
        self._producing = producing
        self._join = join
        self._options = options
        self._clock = clock
        self._seal = seal
        self._opening = asyncio.Lock()

    def now(self) -> int:
        """What time it is, in microseconds."""
        return micros(self._clock.now())

    async def member(self) -> Member:
        """Us in the group that works this mailbox."""
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
        """Leave the group."""
        async with self._opening:
            member, self.present = self.present, None
            if member is not None:
                await member.stop()

    async def partitions(self) -> int:
        """How many partitions its topic has; it is made if need be."""
        if not self._address.create:
            return await self._topics.partitions(self.topic)
        return await self._topics.ensure(self.topic, self._address.partitions)

    async def retry_partitions(self) -> int:
        """The same of its retry topic, which has as many."""
        partitions = await self.partitions()
        if not self._address.create:
            return await self._topics.partitions(self.retry_topic)
        # A record that fitted its topic fits this one too, with its story.
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
        for given in messages:
            message = given
            if message.expires_at is None and expire_after is not None:
                expires = when(micros(now) + round(expire_after * 1e6))
                message = structs.replace(message, expires_at=expires)
            raw = to_record(message)
            if self._address.dialect == "spring":
                raw = with_spring(raw, message, self._address.group)
            if delay > 0:
                trail, keys = Trail(due=due, wait=wait), self._seal.keys
                raw = with_trail(raw, trail, message, topic=topic, keys=keys)
            if raw.size > limit:
                self._topics.forget(topic)  # so that it is noticed when it is raised
                raise Refused(
                    f"message {message.id!a} takes {raw.size} bytes with its headers,"
                    f" and {topic} allows {limit}: raise max.message.bytes there"
                )
            records.append(Outgoing(topic, raw, spread(message, partitions)))
        await self._producing.send(records)

    async def republish(
        self, member: Member, going: Sequence[tuple[Row, Trail]]
    ) -> None:
        """Send rows round by the retry topic; there, they have ended here."""
        if not going:
            return
        partitions = await self.retry_partitions()
        limit = await self._topics.limit(self.retry_topic)
        records = [
            Outgoing(
                self.retry_topic,
                self._fitting(row, trail, limit),
                row.origin[1] % partitions,
            )
            for row, trail in going
        ]
        await self._producing.send(records)
        with member.lock:
            for row, _ in going:
                member.holding.end(row, None)

    async def send_round(self, member: Member) -> Sequence[bool]:
        """Send round what those held who went before us; says for each if it is lost.

        Who left in order has lost nothing.
        """
        with member.lock:
            returned = member.holding.returned
            if not returned:
                return []
            member.holding.returned = []
        now = self.now()
        lost = [not row.lane.progress.left for row in returned]
        going = [
            (row, row.lost(now) if is_lost else row.left(now))
            for row, is_lost in zip(returned, lost, strict=True)
        ]
        try:
            await self.republish(member, going)
            await self.committed(member, returned)
        except BaseException:
            with member.lock:
                member.holding.returned += [
                    row for row in returned if not (row.ended or row.lane.gone)
                ]
            raise
        return lost

    async def make_way(self, member: Member) -> None:
        """Send what waits for long to the end of its topic, when others queue up."""
        with member.lock:
            rows = member.holding.stragglers(self.retry_topic, self.now())
        if not rows:
            return
        try:
            await self.republish(member, [(row, row.waiting()) for row in rows])
            await self.committed(member, rows)
        except BaseException:
            with member.lock:
                for row in rows:
                    if not row.ended:
                        member.holding.put_back(row)
            raise

    async def committed(self, member: Member, rows: Sequence[Row]) -> None:
        """
        Have the broker know that these rows have ended.

        Should it not hear of it now, it does with the next commit.
        """
        try:
            await member.commit({row.lane for row in rows})
        finally:
            with member.lock:
                for row in rows:
                    member.holding.forget(row)

    def _fitting(self, row: Row, trail: Trail, limit: int) -> Raw:
        """The record with its story, of which the beginning is left out if need be."""
        history = trail.history
        topic, keys = self.retry_topic, self._seal.keys
        while True:
            if len(history) <= _HISTORY:
                told = structs.replace(trail, history=history)
                raw = with_trail(row.raw, told, row.message, topic=topic, keys=keys)
                if raw.size <= limit:
                    return raw
                if not history:
                    raise Refused(
                        f"message {row.message.id!a} takes {raw.size} bytes with our"
                        f" headers, and its retry topic allows {limit}: raise"
                        " max.message.bytes there"
                    )
            history = history.partition("\n")[2]


def spread(message: Message, partitions: int) -> int | None:
    """
    The partition of a message without a key: always the same, should it come twice.

    A key decides for itself.
    """
    if message.key is not None:
        return None
    return crc32(message.id.encode("utf-8", "surrogatepass")) % partitions
