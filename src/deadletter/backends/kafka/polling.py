"""
The thread that polls, whatever the handlers do: slow ones never cost us a membership.

It hands over what came a batch at a time, and makes the commits.
"""

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Record

from deadletter.core.errors import DeadLetterError
from deadletter.core.message import Message
from deadletter.core.signing import Keys
from deadletter.ports.signing import Seal
from deadletter.ports.time import Clock

from .committing import Committing
from .errors import AWAY, PARTITION_EOF, broken, kafka_error
from .groups import committed
from .holding import MAX_BYTES, Holding
from .offsets import WINDOW, Progress, read_note
from .rows import Lane
from .topics import Topics
from .wire import Raw, Trail, from_record, micros

_BATCH: Final = 500  # records taken from the client library at once
_NEARLY: Final = WINDOW - 2 * _BATCH  # what is under way when we stop still fits
_POLL: Final = 0.1  # seconds of waiting for records when there is nothing to do
_LOOK: Final = 0.005  # ...and for orders when there is
_OFTEN: Final = 0.5  # seconds between looks when there is enough in hand
_SOON: Final = 200_000  # microseconds
_DRAIN: Final = 5.0  # seconds for what is in work when a partition moves away


class Shared(Protocol):
    """What the threads of a mailbox share, under one lock."""

    lock: threading.Lock
    holding: Holding
    topics: Topics
    clock: Clock
    seal: Seal
    retry_topic: str
    prefetch: int
    trouble: KafkaError | None

    def ring_from_afar(self) -> None: ...


class Polling:
    """A consumer and its thread."""

    def __init__(
        self, shared: Shared, topics: tuple[str, ...], settings: dict[str, Any]
    ) -> None:
        self.topics = topics
        self.joined = threading.Event()
        self._shared = shared
        self._stopping = threading.Event()
        self._looked = 0.0
        self._consumer = Consumer({**settings, "error_cb": self._on_error})
        self._cooperative = "cooperative" in settings["partition.assignment.strategy"]
        self.committing = Committing(self._consumer, shared.lock)
        self._thread = threading.Thread(
            target=self._poll, name=f"deadletter-kafka-{topics[0]}", daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its thread is there."""
        return self._thread.is_alive()

    async def stop(self) -> None:
        """Leave the group, saying how things stand."""
        self._stopping.set()
        self.committing.asked.set()
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
                self.committing.serve()
                self._resume()
                rest = self._rest()
                if not self._has_enough():
                    self._look(rest, _BATCH)
                elif time.monotonic() >= self._looked + _OFTEN:
                    self._look(0.0, 0)
                else:
                    self.committing.asked.wait(rest)
        except Exception as error:  # noqa: BLE001 -- whoever receives hears of it
            self._shared.trouble = kafka_error(error) or broken(error)
            self._shared.ring_from_afar()
        finally:
            self._leave()

    def _rest(self) -> float:
        """
        How long a poll may take.

        Nobody can wake a poll. As long as somebody may ask for a commit, we rest
        where he can wake us, and only look whether something came.
        """
        with self._shared.lock:
            in_hand = self._shared.holding.at_hand(
                self._ours(), micros(self._shared.clock.now()) + _SOON
            )
        if not in_hand:
            return _POLL
        self.committing.asked.wait(_LOOK)
        self.committing.asked.clear()
        self.committing.serve()
        return 0.0

    def _look(self, wait: float, more: int) -> None:
        """See what came, and whether partitions come or go."""
        self._looked = time.monotonic()
        first = self._consumer.poll(wait)
        if first is not None:
            others = self._consumer.consume(more, 0) if more else []
            self._take_in([first, *others])

    def _has_enough(self) -> bool:
        """
        Whether more records would only lie about.

        Not to look is cheaper than to pause: what was fetched already is not thrown
        away. But now and then we must, or we are no member any more.
        """
        with self._shared.lock:
            lanes = self._ours()
            rows = sum(len(lane.rows) for lane in lanes)
            weight = sum(lane.bytes for lane in lanes)
        return (
            weight >= MAX_BYTES or rows >= self._most(self.topics[0]) * len(lanes) > 0
        )

    def _most(self, topic: str) -> int:
        # What waits in the retry topic for its time must not keep others waiting.
        return WINDOW if topic == self._shared.retry_topic else self._shared.prefetch

    def _resume(self) -> None:
        """Fetch again where there is room."""
        with self._shared.lock:
            resumed = [
                lane
                for lane in self._ours()
                if lane.paused and not self._is_full(lane, share=0.5)
            ]
            for lane in resumed:
                lane.paused = False
        if resumed:
            self._consumer.resume([TopicPartition(*lane.place) for lane in resumed])

    def _leave(self) -> None:
        with self._shared.lock:
            lanes = self._ours()
        self._give_up(lanes, wait=0.0)  # whoever works has been told to stop before
        self.committing.end()
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def _take_in(self, records: list[Record]) -> None:
        now = micros(self._shared.clock.now())
        keys = self._shared.seal.keys
        parsed = [_parsed(record, keys) for record in records if record.error() is None]
        with self._shared.lock:
            for (topic, partition, offset), raw, (message, trail) in parsed:
                lane = self._shared.holding.lanes.get((topic, partition))
                if lane is not None:
                    due = now if trail.due is None else trail.due
                    self._shared.holding.take_in(
                        lane, offset, raw, message, trail, due=due
                    )
            for record in records:
                if (error := record.error()) is not None:
                    self._heard(record, error)
            full = [
                lane for lane in self._ours() if not lane.paused and self._is_full(lane)
            ]
            for lane in full:
                lane.paused = True
        if full:
            self._consumer.pause([TopicPartition(*lane.place) for lane in full])
        if parsed:
            self._shared.trouble = None
        self._shared.ring_from_afar()

    def _heard(self, record: Record, error: KafkaError) -> None:
        if error.code() != PARTITION_EOF:
            self._on_error(error)
            return
        topic, partition, offset = _place(record)
        lane = self._shared.holding.lanes.get((topic, partition))
        if lane is not None:
            self._shared.holding.reached_end(lane, offset)

    def _is_full(self, lane: Lane, share: float = 1.0) -> bool:
        """Whether nothing more is to be fetched for a lane, come what may."""
        if lane.position - lane.progress.base >= _NEARLY * share:
            return True
        topic = lane.place[0]
        if self._shared.holding.weight(topic) >= 2 * MAX_BYTES * share:
            return True
        return len(lane.rows) >= 4 * self._most(topic) * share

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        lanes = self._lanes(given)
        starts = [TopicPartition(*lane.place, lane.progress.base) for lane in lanes]
        if self._cooperative:
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)
        with self._shared.lock:
            for lane in lanes:
                self._shared.holding.add(lane)
        self._shared.trouble = None
        self.joined.set()
        self._shared.ring_from_afar()

    def _lanes(self, given: list[TopicPartition]) -> list[Lane]:
        """How far these were worked; asked until the broker says."""
        while given and not self._stopping.is_set():
            try:
                known = committed(self._consumer, given, within=10)
                first = self._shared.topics.beginnings(
                    [(p.topic, p.partition) for p in known]
                )
            except (KafkaException, DeadLetterError) as error:
                self._shared.trouble = kafka_error(error) or self._shared.trouble
                self._stopping.wait(0.2)
                continue
            return [
                self._lane(place, first[place.topic, place.partition])
                for place in known
            ]
        return []

    def _lane(self, place: TopicPartition, first: int) -> Lane:
        if place.offset < 0:  # never worked by this group
            return Lane((place.topic, place.partition), Progress(first))
        progress = read_note(place.offset, place.metadata)
        if gone := progress.open_until(first):
            # Deleted before we could read them. They stay in the tally, where they
            # are missing from what has left.
            progress.tally["missed"] = progress.tally.get("missed", 0) + gone
            progress.skip(progress.base, first)
        return Lane((place.topic, place.partition), progress)

    def _on_revoke(self, _: Consumer, taken: list[TopicPartition]) -> None:
        self._give_up(self._named(taken))

    def _on_lost(self, _: Consumer, taken: list[TopicPartition]) -> None:
        with self._shared.lock:
            for lane in self._named(taken):
                self._shared.holding.drop(lane)
        self._shared.ring_from_afar()

    def _give_up(self, lanes: list[Lane], *, wait: float = _DRAIN) -> None:
        """Hand out nothing more of these, wait for what is in work, say goodbye."""
        deadline = time.monotonic() + wait
        with self._shared.lock:
            for lane in lanes:
                lane.closing = True
            self._shared.holding.give_back_ahead()
        while time.monotonic() < deadline:
            with self._shared.lock:
                if not self._shared.holding.in_work(lanes):
                    break
            self.committing.asked.wait(_LOOK)
            self.committing.asked.clear()
            self.committing.serve()
        with suppress(DeadLetterError):  # whoever comes next takes us for lost
            self.committing.farewell(lanes)
        with self._shared.lock:
            for lane in lanes:
                self._shared.holding.drop(lane)
        self._shared.ring_from_afar()

    def _ours(self) -> list[Lane]:
        lanes = self._shared.holding.lanes.values()
        return [lane for lane in lanes if lane.place[0] in self.topics]

    def _named(self, taken: list[TopicPartition]) -> list[Lane]:
        lanes = self._shared.holding.lanes
        found = [lanes.get((place.topic, place.partition)) for place in taken]
        return [lane for lane in found if lane is not None]

    def _on_error(self, error: KafkaError) -> None:
        passing = error.retriable() and error.code() not in AWAY
        if not passing:
            self._shared.trouble = error
            self._shared.ring_from_afar()


def _parsed(
    record: Record, keys: Keys
) -> tuple[tuple[str, int, int], Raw, tuple[Message, Trail]]:
    place = _place(record)
    headers: Any = record.headers() or []
    raw = Raw(key=record.key(), value=record.value(), headers=headers)
    sent_ms = max(0, record.timestamp()[1])
    return place, raw, from_record(raw, *place, sent_ms, keys)


def _place(record: Record) -> tuple[str, int, int]:
    where: Any = (record.topic(), record.partition(), record.offset())
    return where  # type: ignore[no-any-return]
