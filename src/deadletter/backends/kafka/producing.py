"""Sending records, many at a time: durable on the broker when `send` returns."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from msgspec import Struct

from deadletter.core.errors import Unavailable

from .errors import in_our_words, kafka_error
from .wire import Raw

_QUIET: Final = 0.1  # seconds between looks when nothing comes


class Outgoing(Struct, frozen=True):
    """A record and where it goes; without a partition its key decides."""

    topic: str
    raw: Raw
    partition: int | None = None


class Producing:
    """
    One idempotent producer, and the thread that hears what became of its records.

    After an error that a producer cannot get over, the next one takes its place.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    async def send(self, records: Sequence[Outgoing]) -> None:
        """Send records; returns once the broker has them all."""
        if not records:
            return
        loop = asyncio.get_running_loop()
        batch = _Batch(loop, len(records))
        producer = self._open()
        for record in records:
            while not _produced(producer, record, batch):  # noqa: ASYNC110 -- see below
                await asyncio.sleep(0.01)  # its queue is full, and nobody tells of room
        error = await asyncio.shield(batch.future)
        if error is None:
            return
        if error.fatal():
            self._replace(producer)
        raise in_our_words(error, f"sending to {records[0].topic}")

    async def close(self) -> None:
        """Send what is under way, and end."""
        with self._lock:
            producer, self._producer, self._closed = self._producer, None, True
        if producer is not None:
            await asyncio.to_thread(producer.flush, 10)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _open(self) -> Producer:
        with self._lock:
            if self._closed:
                raise Unavailable("the Kafka engine is closed")
            if self._producer is None:
                self._producer = Producer(self._settings)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._listen, name="deadletter-kafka-reports", daemon=True
                )
                self._thread.start()
            return self._producer

    def _replace(self, broken: Producer) -> None:
        with self._lock:
            if self._producer is broken:
                self._producer = None

    def _listen(self) -> None:
        while True:
            with self._lock:
                producer, closed = self._producer, self._closed
            if producer is not None:
                producer.poll(_QUIET)
            elif closed:
                return
            else:
                threading.Event().wait(0.01)


class _Batch:
    """Reports still to come for what was sent together; the first error counts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self.future: asyncio.Future[KafkaError | None] = loop.create_future()
        self._loop = loop
        self._left = count
        self._lock = threading.Lock()
        self._error: KafkaError | None = None

    def report(self, error: KafkaError | None, _: Any) -> None:
        with self._lock:
            if error is not None and self._error is None:
                self._error = error
            self._left -= 1
            last = not self._left
        if last:
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:  # the loop has ended: nobody waits any more
                return

    def _tell(self) -> None:
        if not self.future.done():
            self.future.set_result(self._error)


def _produced(producer: Producer, record: Outgoing, batch: _Batch) -> bool:
    """Queue a record; says False when there is no room for it yet."""
    more: dict[str, Any] = {"headers": record.raw.headers}
    if record.partition is not None:
        more["partition"] = record.partition
    raw = record.raw
    try:
        producer.produce(
            record.topic,
            raw.value,
            raw.key,
            on_delivery=batch.report,
            **more,
        )
    except BufferError:
        return False
    except KafkaException as error:  # known before it is sent: too large, mostly
        inner = kafka_error(error)
        if inner is None:
            raise
        batch.report(inner, None)
    return True
