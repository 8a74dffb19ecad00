"""Connections to a Kafka cluster: settings of the clients, the admin client, the producer."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Record
from confluent_kafka.admin import AdminClient
from msgspec import Struct

from deadletter.core.errors import Unavailable

from .address import Address
from .errors import at_start, from_code, kafka_error
from .records import Raw

_OPENING: Final = 10.0  # seconds for the first answer
_POLL: Final = 0.1  # seconds that the report thread waits for a report
_FULL: Final = 0.01  # seconds until a full queue of the producer is tried again
_FLUSH: Final = 10.0  # seconds to send what is left at the end

CONSUMER: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 100,  # a resumed partition waits for the fetch before it
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": 300_000,
    "reconnect.backoff.max.ms": 1_000,
}
PRODUCER: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 1,
    "delivery.timeout.ms": 30_000,
    "partitioner": "murmur2_random",  # spreads keys like the Java client
    "reconnect.backoff.max.ms": 1_000,
}


def client_settings(address: Address) -> dict[str, Any]:
    """Return the settings that all clients of a cluster share."""
    # The library would log to standard error; all that matters is raised, so it logs
    # emergencies only.
    quiet = {"bootstrap.servers": address.bootstrap, "log_level": 0}
    return {**quiet, "client.id": "deadletter", **address.client}


async def open_admin(address: Address) -> tuple[AdminClient, int]:
    """Connect; return the admin client and the number of brokers."""
    return await asyncio.to_thread(_open_admin, address)


def _open_admin(address: Address) -> tuple[AdminClient, int]:
    reported: list[KafkaError] = []
    try:
        settings: dict[str, Any] = {**client_settings(address), "error_cb": reported.append}
        admin = AdminClient(settings)
        try:
            return admin, len(admin.list_topics(timeout=_OPENING).brokers)
        except KafkaException:
            admin.poll(0)  # collects the errors behind "no answer"
            raise
    except KafkaException as error:
        raise at_start(error, address.bootstrap, reported) from error


class Outgoing(Struct, frozen=True):
    """A record and its destination; without a partition, its key decides."""

    topic: str
    raw: Raw
    partition: int | None = None
    timestamp: int | None = None  # milliseconds


Report: TypeAlias = Callable[[KafkaError | None, Record | None], None]
Outcome: TypeAlias = KafkaError | Record | None


class Sender:
    """
    An idempotent producer, and the thread that collects its delivery reports.

    After a fatal error of a producer the next one takes its place.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    async def send(self, records: Sequence[Outgoing]) -> None:
        """Send records; return once the broker has stored them all."""
        if not records:
            return
        batch = _Batch(len(records))
        producer = await self._produce(records, [batch.report] * len(records))
        error = await asyncio.shield(batch.done)
        if error is None:
            return
        self._replace_failed(producer, error)
        raise from_code(error, f"sending to {records[0].topic}")

    async def send_each(self, records: Sequence[Outgoing]) -> list[Outcome]:
        """Send records; return for each its place on the broker, or its error."""
        if not records:
            return []
        batch = _Batch(len(records))
        outcomes: list[Outcome] = [None] * len(records)

        def report(place: int, error: KafkaError | None, record: Record | None) -> None:
            outcomes[place] = record if error is None else error
            batch.report(error, record)

        reports = [partial(report, place) for place in range(len(records))]
        producer = await self._produce(records, reports)
        error = await asyncio.shield(batch.done)
        if error is not None:
            self._replace_failed(producer, error)
        return outcomes

    async def close(self) -> None:
        """Send what is under way, and end the thread."""
        with self._lock:
            producer, self._producer, self._is_closed = self._producer, None, True
        if producer is not None:
            await asyncio.to_thread(producer.flush, _FLUSH)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def _produce(self, records: Sequence[Outgoing], reports: Sequence[Report]) -> Producer:
        producer = self._open()
        for record, report in zip(records, reports, strict=True):
            while not _enqueue(producer, record, report):  # noqa: ASYNC110 -- no event for it
                await asyncio.sleep(_FULL)
        return producer

    def _open(self) -> Producer:
        with self._lock:
            if self._is_closed:
                raise Unavailable("the Kafka connection is closed")
            if self._producer is None:
                self._producer = Producer(self._settings)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._collect_reports, name="deadletter-kafka-reports", daemon=True
                )
                self._thread.start()
            return self._producer

    def _replace_failed(self, producer: Producer, error: KafkaError) -> None:
        with self._lock:
            if error.fatal() and self._producer is producer:
                self._producer = None

    def _collect_reports(self) -> None:
        while True:
            with self._lock:
                producer, is_closed = self._producer, self._is_closed
            if producer is not None:
                producer.poll(_POLL)
            elif is_closed:
                return
            else:
                threading.Event().wait(_FULL)


class _Batch:
    """Delivery reports of records that were sent together; keeps the first error."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[KafkaError | None] = self._loop.create_future()
        self._left = count
        self._lock = threading.Lock()
        self._error: KafkaError | None = None

    def report(self, error: KafkaError | None, _: Record | None) -> None:
        with self._lock:
            if error is not None and self._error is None:
                self._error = error
            self._left -= 1
            is_last = not self._left
        if is_last:
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(self._error)


def _enqueue(producer: Producer, record: Outgoing, report: Report) -> bool:
    """Give a record to the producer; False if its queue is full."""
    more: dict[str, Any] = {"headers": record.raw.headers}
    if record.partition is not None:
        more["partition"] = record.partition
    if record.timestamp is not None:
        more["timestamp"] = record.timestamp
    raw = record.raw
    try:
        producer.produce(record.topic, raw.value, raw.key, on_delivery=report, **more)
    except BufferError:
        return False
    except KafkaException as error:  # found before sending: mostly a record too large
        inner = kafka_error(error)
        if inner is None:
            raise
        report(inner, None)
    return True
