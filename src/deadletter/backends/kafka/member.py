"""
Us as a member of the consumer groups that work one mailbox.

What came and whose it is, is kept here for both of the mailbox's topics. They have a
group each, so that every member has its share of both; where keys keep their order
one group has them together, so that a key's records are in one place.
"""

import asyncio
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError
from msgspec import Struct

from deadletter.core.errors import DeadLetterError, Unavailable
from deadletter.ports.signing import Seal
from deadletter.ports.time import Clock

from .errors import in_our_words
from .holding import Holding
from .polling import Polling
from .rows import Lane
from .topics import Topics
from .wire import micros

_JOIN: Final = 30.0  # seconds to become a member
_CATCH_UP: Final = 5.0  # seconds
_AHEAD: Final = 8  # batches; should we be killed, they are suspects like those in work


class Subscription(Struct, frozen=True):
    """Topics that one consumer reads, and how the client library is set for it."""

    topics: tuple[str, ...]
    settings: dict[str, Any]


class Member:
    """What this process has of one mailbox, as long as it is in the groups."""

    def __init__(
        self,
        subscriptions: Sequence[Subscription],
        *,
        retry_topic: str,
        topics: Topics,
        clock: Clock,
        seal: Seal,
        numbers: Iterator[int],
        prefetch: int,
        by_key: bool,
    ) -> None:
        self.retry_topic = retry_topic
        self.prefetch = prefetch
        self.clock = clock
        self.seal = seal
        self.topics = topics
        self.lock = threading.Lock()
        self.holding = Holding(by_key=by_key, numbers=numbers)
        self.trouble: KafkaError | None = None
        self._loop = asyncio.get_running_loop()
        self._bells: set[asyncio.Event] = set()
        self._ahead: asyncio.Future[None] | None = None
        self._wanted = 0  # how many are taken at a time by who wants some ahead
        self._size = 0  # how many are counted ahead
        self._waited = False  # whether somebody had to wait for them
        self._name = subscriptions[0].topics[0]
        self._polling = [Polling(self, s.topics, s.settings) for s in subscriptions]

    @property
    def alive(self) -> bool:
        """Whether we are, or may still become, a member."""
        return all(polling.alive for polling in self._polling)

    async def joined(self) -> None:
        """Wait until we are in the groups, and have our partitions."""
        deadline = self._loop.time() + _JOIN
        while not all(polling.joined.is_set() for polling in self._polling):
            self.raise_trouble()
            if self._loop.time() > deadline:
                raise Unavailable(
                    f"the consumer group of {self._name} did not take us in within"
                    f" {_JOIN:.0f} seconds"
                )
            await self.rung(0.5)

    async def commit(self, lanes: Collection[Lane]) -> None:
        """
        Have the broker know how these lanes stand; returns when it does.

        Those that are no longer ours are left out: look at `gone` afterwards.
        """
        asking = []
        for polling in self._polling:
            theirs = [lane for lane in lanes if lane.place[0] in polling.topics]
            if theirs:
                asking.append(polling.committing.commit(theirs))
        if len(asking) == 1:
            await asking[0]
        else:
            await asyncio.gather(*asking)

    async def commit_ended(self, lanes: Collection[Lane]) -> None:
        """The same of lanes where some ended; the next ones are counted with it."""
        if not self._wanted or self.counts_ahead:
            await self.commit(lanes)
            return
        along: asyncio.Future[None] = self._loop.create_future()
        self._ahead = along
        try:
            await self._commit_ahead(lanes)
        finally:
            along.set_result(None)

    def count_ahead(self, batch: int) -> None:
        """
        Count some for whoever comes next, unless that is under way.

        At once if there are too few for him, or else with what ends next: one commit
        tells of both.
        """
        if self.counts_ahead:
            return
        self._wanted = batch
        if self.holding.ready < batch:
            self._ahead = self._loop.create_task(self._count_ahead())

    @property
    def counts_ahead(self) -> bool:
        """Whether some are being counted for whoever comes next."""
        return self._ahead is not None and not self._ahead.done()

    async def until_counted(self) -> None:
        """Wait for those that are being counted, if there are no others."""
        if self._ahead is not None and self.counts_ahead and not self.holding.ready:
            self._waited = True
            await asyncio.wait({self._ahead})

    async def _count_ahead(self) -> None:
        with suppress(DeadLetterError):  # whoever comes next meets it
            await self._commit_ahead(())

    async def _commit_ahead(self, lanes: Collection[Lane]) -> None:
        """
        Count as many as are wanted, and have the broker know, of these lanes too.

        Twice as many when somebody had to wait for the last ones, and fewer again
        when nobody did: slow handlers have no more than a batch counted for them.
        """
        batch, self._wanted = self._wanted, 0
        size = self._size * 2 if self._waited else self._size * 7 // 8
        self._size = min(max(size, batch), _AHEAD * batch)
        self._waited = False
        with self.lock:
            rows = self.holding.claim_ahead(micros(self.clock.now()), self._size)
        try:
            await self.commit({*lanes, *(row.lane for row in rows)})
        except BaseException:
            with self.lock:
                self.holding.give_back_ahead(rows)
            self.ring()
            raise
        with self.lock:
            self.holding.keep_ready(rows)
        self.ring()

    async def caught_up(self) -> None:
        """Wait until we have seen all that is in our partitions now."""
        with self.lock:
            places = list(self.holding.lanes)
        ends = await self.topics.ends(places)
        deadline = self._loop.time() + _CATCH_UP
        while self._loop.time() < deadline:
            with self.lock:
                behind = any(
                    lane.position < ends.get(place, 0) and not lane.paused
                    for place, lane in self.holding.lanes.items()
                )
            if not behind:
                return
            await self.rung(0.05)

    async def rung(self, within: float) -> None:
        """Wait until something came, or for so long."""
        bell = asyncio.Event()
        self._bells.add(bell)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await bell.wait()
        finally:
            self._bells.discard(bell)

    def ring(self) -> None:
        """Wake those who wait."""
        for bell in self._bells:
            bell.set()

    def ring_from_afar(self) -> None:
        """The same from another thread."""
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(self.ring)

    def raise_trouble(self) -> None:
        """Say what is wrong, if we cannot work."""
        trouble = self.trouble
        if trouble is not None:
            raise in_our_words(trouble, f"working {self._name}")

    def went_well(self) -> None:
        """The broker answers."""
        self.trouble = None

    async def stop(self) -> None:
        """Leave the groups, saying how things stand."""
        await asyncio.gather(*(polling.stop() for polling in self._polling))
        if self._ahead is not None:
            await asyncio.gather(self._ahead, return_exceptions=True)
