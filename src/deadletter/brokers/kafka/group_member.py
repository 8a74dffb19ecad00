"""
Our membership in the consumer groups of one mailbox.

The topic and the retry topic have a group each, so that every member gets a share of
both. With `ordering=key` one group has both topics, so that all records of a key are
assigned to the same member.
"""

import asyncio
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Record
from msgspec import Struct

from deadletter.core.errors import DeadLetterError, Unavailable
from deadletter.core.message import Message
from deadletter.core.signing import Keys
from deadletter.kit import micros
from deadletter.ports.features import Clock
from deadletter.ports.letters import Seal

from .backlog import MAX_BYTES, Backlog
from .errors import PARTITION_EOF, UNREACHABLE, from_code, internal_error, kafka_error
from .partitions import WINDOW, Assignment, Committer, Progress, read_note
from .records import Raw, Trail, from_record
from .topics import Topics, committed

_BATCH: Final = 500  # records taken from the client library at once
_NEARLY: Final = WINDOW - 2 * _BATCH  # fetched records still fit when we pause
_POLL: Final = 0.1  # seconds to wait for records when idle
_LOOK: Final = 0.005  # seconds to wait for commits when busy
_OFTEN: Final = 0.5  # seconds between polls when the backlog is full
_SOON: Final = 200_000  # microseconds
_DRAIN: Final = 5.0  # seconds for claimed records when a partition is revoked


class Shared(Protocol):
    """State that the threads of a mailbox share, under one lock."""

    lock: threading.Lock
    backlog: Backlog
    topics: Topics
    clock: Clock
    seal: Seal
    retry_topic: str
    prefetch: int
    error: KafkaError | None

    def wake_threadsafe(self) -> None: ...


class PollThread:
    """A consumer and its thread: polls while handlers run, so slow ones lose no membership."""

    def __init__(self, shared: Shared, topics: tuple[str, ...], settings: dict[str, Any]) -> None:
        self.topics = topics
        self.joined = threading.Event()
        self._shared = shared
        self._stopping = threading.Event()
        self._looked = 0.0
        self._consumer = Consumer({**settings, "error_cb": self._on_error})
        self._cooperative = "cooperative" in settings["partition.assignment.strategy"]
        self.committer = Committer(self._consumer, shared.lock)
        self._thread = threading.Thread(
            target=self._poll, name=f"deadletter-kafka-{topics[0]}", daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    async def stop(self) -> None:
        """Commit, and leave the group."""
        self._stopping.set()
        self.committer.asked.set()
        await asyncio.to_thread(self._thread.join)

    def _poll(self) -> None:
        try:
            self._consumer.subscribe(
                list(self.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            while not self._stopping.is_set():
                self.committer.serve()
                self._resume()
                rest = self._rest()
                if not self._has_enough():
                    self._look(rest, _BATCH)
                elif time.monotonic() >= self._looked + _OFTEN:
                    self._look(0.0, 0)
                else:
                    self.committer.asked.wait(rest)
        except Exception as error:  # noqa: BLE001 -- raised by receive
            self._shared.error = kafka_error(error) or internal_error(error)
            self._shared.wake_threadsafe()
        finally:
            self._leave()

    def _rest(self) -> float:
        """
        Return how long a poll may take.

        Nothing can interrupt a poll. While a commit may be requested, wait on its event
        instead, and poll without waiting.
        """
        with self._shared.lock:
            in_hand = self._shared.backlog.at_hand(
                self._ours(), micros(self._shared.clock.now()) + _SOON
            )
        if not in_hand:
            return _POLL
        self.committer.asked.wait(_LOOK)
        self.committer.asked.clear()
        self.committer.serve()
        return 0.0

    def _look(self, wait: float, more: int) -> None:
        """Poll once: fetch records, and run the callbacks of rebalances."""
        self._looked = time.monotonic()
        first = self._consumer.poll(wait)
        if first is not None:
            others = self._consumer.consume(more, 0) if more else []
            self._take_in([first, *others])

    def _has_enough(self) -> bool:
        """
        Tell whether the backlog is full.

        Not polling is cheaper than pausing, which drops fetched records. But the group
        expects a poll now and then.
        """
        with self._shared.lock:
            assignments = self._ours()
            entries = sum(len(assignment.entries) for assignment in assignments)
            weight = sum(assignment.bytes for assignment in assignments)
        return weight >= MAX_BYTES or entries >= self._most(self.topics[0]) * len(assignments) > 0

    def _most(self, topic: str) -> int:
        # Waiting records of the retry topic must not block others.
        return WINDOW if topic == self._shared.retry_topic else self._shared.prefetch

    def _resume(self) -> None:
        """Resume paused partitions that have room again."""
        with self._shared.lock:
            resumed = [
                assignment
                for assignment in self._ours()
                if assignment.paused and not self._is_full(assignment, share=0.5)
            ]
            for assignment in resumed:
                assignment.paused = False
        if resumed:
            self._consumer.resume([TopicPartition(*assignment.place) for assignment in resumed])

    def _leave(self) -> None:
        with self._shared.lock:
            assignments = self._ours()
        self._give_up(assignments, wait=0.0)  # workers were stopped before
        self.committer.end()
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def _take_in(self, records: list[Record]) -> None:
        now = micros(self._shared.clock.now())
        keys = self._shared.seal.keys
        parsed = [_parsed(record, keys) for record in records if record.error() is None]
        with self._shared.lock:
            for (topic, partition, offset), raw, (message, trail) in parsed:
                assignment = self._shared.backlog.assignments.get((topic, partition))
                if assignment is not None:
                    due = now if trail.due is None else trail.due
                    self._shared.backlog.add(assignment, offset, raw, message, trail, due=due)
            for record in records:
                if (error := record.error()) is not None:
                    self._heard(record, error)
            full = [
                assignment
                for assignment in self._ours()
                if not assignment.paused and self._is_full(assignment)
            ]
            for assignment in full:
                assignment.paused = True
        if full:
            self._consumer.pause([TopicPartition(*assignment.place) for assignment in full])
        if parsed:
            self._shared.error = None
        self._shared.wake_threadsafe()

    def _heard(self, record: Record, error: KafkaError) -> None:
        if error.code() != PARTITION_EOF:
            self._on_error(error)
            return
        topic, partition, offset = _place(record)
        assignment = self._shared.backlog.assignments.get((topic, partition))
        if assignment is not None:
            self._shared.backlog.reached_end(assignment, offset)

    def _is_full(self, assignment: Assignment, share: float = 1.0) -> bool:
        """Tell whether to pause a assignment, come what may."""
        if assignment.position - assignment.progress.base >= _NEARLY * share:
            return True
        topic = assignment.place[0]
        if self._shared.backlog.weight(topic) >= 2 * MAX_BYTES * share:
            return True
        return len(assignment.entries) >= 4 * self._most(topic) * share

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        assignments = self._assignments(given)
        starts = [
            TopicPartition(*assignment.place, assignment.progress.base)
            for assignment in assignments
        ]
        if self._cooperative:
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)
        with self._shared.lock:
            for assignment in assignments:
                self._shared.backlog.assign(assignment)
        self._shared.error = None
        self.joined.set()
        self._shared.wake_threadsafe()

    def _assignments(self, given: list[TopicPartition]) -> list[Assignment]:
        """Read the progress of partitions; repeat until the broker answers."""
        while given and not self._stopping.is_set():
            try:
                known = committed(self._consumer, given, within=10)
                first = self._shared.topics.beginnings([(p.topic, p.partition) for p in known])
            except (KafkaException, DeadLetterError) as error:
                self._shared.error = kafka_error(error) or self._shared.error
                self._stopping.wait(0.2)
                continue
            return [self._assignment(place, first[place.topic, place.partition]) for place in known]
        return []

    def _assignment(self, place: TopicPartition, first: int) -> Assignment:
        if place.offset < 0:  # never worked by this group
            return Assignment((place.topic, place.partition), Progress(first))
        progress = read_note(place.offset, place.metadata)
        if gone := progress.open_until(first):
            # Deleted by retention before we read them: counted as missed.
            progress.tally["missed"] = progress.tally.get("missed", 0) + gone
            progress.skip(progress.base, first)
        return Assignment((place.topic, place.partition), progress)

    def _on_revoke(self, _: Consumer, taken: list[TopicPartition]) -> None:
        self._give_up(self._named(taken))

    def _on_lost(self, _: Consumer, taken: list[TopicPartition]) -> None:
        with self._shared.lock:
            for assignment in self._named(taken):
                self._shared.backlog.revoke(assignment)
        self._shared.wake_threadsafe()

    def _give_up(self, assignments: list[Assignment], *, wait: float = _DRAIN) -> None:
        """Stop claims of partitions, wait for claimed records, commit for the last time."""
        deadline = time.monotonic() + wait
        with self._shared.lock:
            for assignment in assignments:
                assignment.closing = True
            self._shared.backlog.give_back_ahead()
        while time.monotonic() < deadline:
            with self._shared.lock:
                if not self._shared.backlog.in_work(assignments):
                    break
            self.committer.asked.wait(_LOOK)
            self.committer.asked.clear()
            self.committer.serve()
        with suppress(DeadLetterError):  # the next owner treats us as lost
            self.committer.commit_final(assignments)
        with self._shared.lock:
            for assignment in assignments:
                self._shared.backlog.revoke(assignment)
        self._shared.wake_threadsafe()

    def _ours(self) -> list[Assignment]:
        assignments = self._shared.backlog.assignments.values()
        return [assignment for assignment in assignments if assignment.place[0] in self.topics]

    def _named(self, taken: list[TopicPartition]) -> list[Assignment]:
        assignments = self._shared.backlog.assignments
        found = [assignments.get((place.topic, place.partition)) for place in taken]
        return [assignment for assignment in found if assignment is not None]

    def _on_error(self, error: KafkaError) -> None:
        passing = error.retriable() and error.code() not in UNREACHABLE
        if not passing:
            self._shared.error = error
            self._shared.wake_threadsafe()


def _parsed(record: Record, keys: Keys) -> tuple[tuple[str, int, int], Raw, tuple[Message, Trail]]:
    place = _place(record)
    headers: Any = record.headers() or []
    raw = Raw(key=record.key(), value=record.value(), headers=headers)
    sent_ms = max(0, record.timestamp()[1])
    return place, raw, from_record(raw, *place, sent_ms, keys)


def _place(record: Record) -> tuple[str, int, int]:
    where: Any = (record.topic(), record.partition(), record.offset())
    return where  # type: ignore[no-any-return]


_JOIN: Final = 30.0  # seconds to become a member
_CATCH_UP: Final = 5.0  # seconds
_AHEAD: Final = 8  # batches; after a kill they are suspects like claimed ones


class Subscription(Struct, frozen=True):
    """Topics of one consumer, and its settings."""

    topics: tuple[str, ...]
    settings: dict[str, Any]


class GroupMember:
    """Our share of one mailbox while we are a member of its groups."""

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
        self.backlog = Backlog(by_key=by_key, numbers=numbers)
        self.error: KafkaError | None = None
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Event] = set()
        self._ahead: asyncio.Future[None] | None = None
        self._wanted = 0  # batch size of the receiver that wants some counted ahead
        self._size = 0  # entries counted ahead at once
        self._waited = False  # whether a receiver had to wait for them
        self._name = subscriptions[0].topics[0]
        self._poll_threads = [PollThread(self, s.topics, s.settings) for s in subscriptions]

    @property
    def alive(self) -> bool:
        """Return whether all poll threads run."""
        return all(poll_thread.alive for poll_thread in self._poll_threads)

    async def joined(self) -> None:
        """Wait until the groups have assigned partitions to us."""
        deadline = self._loop.time() + _JOIN
        while not all(poll_thread.joined.is_set() for poll_thread in self._poll_threads):
            self.raise_error()
            if self._loop.time() > deadline:
                raise Unavailable(
                    f"the consumer group of {self._name} did not accept us within"
                    f" {_JOIN:.0f} seconds"
                )
            await self.wait_for_change(0.5)

    async def commit(self, assignments: Collection[Assignment]) -> None:
        """
        Commit the progress of assignments, and wait for it.

        Revoked ones are left out: check `gone` afterwards.
        """
        asking = []
        for poll_thread in self._poll_threads:
            theirs = [
                assignment
                for assignment in assignments
                if assignment.place[0] in poll_thread.topics
            ]
            if theirs:
                asking.append(poll_thread.committer.commit(theirs))
        if len(asking) == 1:
            await asking[0]
        else:
            await asyncio.gather(*asking)

    async def commit_ended(self, assignments: Collection[Assignment]) -> None:
        """Commit settled entries, and count the next ones in the same commit."""
        if not self._wanted or self.counts_ahead:
            await self.commit(assignments)
            return
        along: asyncio.Future[None] = self._loop.create_future()
        self._ahead = along
        try:
            await self._commit_ahead(assignments)
        finally:
            along.set_result(None)

    def count_ahead(self, batch: int) -> None:
        """
        Count a batch ahead for the next receiver, unless that is in progress.

        At once if too few are ready, otherwise with the next commit of settled entries.
        """
        if self.counts_ahead:
            return
        self._wanted = batch
        if self.backlog.ready < batch:
            self._ahead = self._loop.create_task(self._count_ahead())

    @property
    def counts_ahead(self) -> bool:
        """Return whether a batch is being counted ahead."""
        return self._ahead is not None and not self._ahead.done()

    async def until_counted(self) -> None:
        """Wait for the batch that is being counted, if no other entry is ready."""
        if self._ahead is not None and self.counts_ahead and not self.backlog.ready:
            self._waited = True
            await asyncio.wait({self._ahead})

    async def _count_ahead(self) -> None:
        with suppress(DeadLetterError):  # the next receiver gets the error
            await self._commit_ahead(())

    async def _commit_ahead(self, assignments: Collection[Assignment]) -> None:
        """
        Count the wanted batch ahead, and commit it with these assignments.

        The size doubles when a receiver had to wait, and shrinks when none did: slow
        handlers have no more than one batch counted ahead.
        """
        batch, self._wanted = self._wanted, 0
        size = self._size * 2 if self._waited else self._size * 7 // 8
        self._size = min(max(size, batch), _AHEAD * batch)
        self._waited = False
        with self.lock:
            entries = self.backlog.claim_ahead(micros(self.clock.now()), self._size)
        try:
            await self.commit({*assignments, *(entry.assignment for entry in entries)})
        except BaseException:
            with self.lock:
                self.backlog.give_back_ahead(entries)
            self.wake()
            raise
        with self.lock:
            self.backlog.keep_ready(entries)
        self.wake()

    async def catch_up(self) -> None:
        """Wait until we have read everything that is in our partitions now."""
        with self.lock:
            places = list(self.backlog.assignments)
        ends = await self.topics.ends(places)
        deadline = self._loop.time() + _CATCH_UP
        while self._loop.time() < deadline:
            with self.lock:
                behind = any(
                    assignment.position < ends.get(place, 0) and not assignment.paused
                    for place, assignment in self.backlog.assignments.items()
                )
            if not behind:
                return
            await self.wait_for_change(0.05)

    async def wait_for_change(self, within: float) -> None:
        """Wait until something changed, for at most `within` seconds."""
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await waiter.wait()
        finally:
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """Wake all waiting receivers."""
        for waiter in self._waiters:
            waiter.set()

    def wake_threadsafe(self) -> None:
        """Wake all waiting receivers, from another thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.wake)

    def raise_error(self) -> None:
        """Raise the current error of the poll threads, if any."""
        error = self.error
        if error is not None:
            raise from_code(error, f"working {self._name}")

    def clear_error(self) -> None:
        """Clear the error: the broker answers."""
        self.error = None

    async def stop(self) -> None:
        """Commit, and leave the groups."""
        await asyncio.gather(*(poll_thread.stop() for poll_thread in self._poll_threads))
        if self._ahead is not None:
            await asyncio.gather(self._ahead, return_exceptions=True)
