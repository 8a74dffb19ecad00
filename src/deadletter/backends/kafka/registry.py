"""
Mailboxes' options: a compacted topic of one partition, a record for each mailbox.

Everybody reads it now and then, so a change made elsewhere is known here within
half a minute. A cluster where nobody has set options does not have the topic.
"""

import asyncio
import time
from typing import Any, Final

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    TopicPartition,
)

from deadletter.core.errors import NotFound
from deadletter.ports.broker import QueueOptions

from .errors import PARTITION_EOF, in_our_words, translated
from .producing import Outgoing, Producing
from .topics import Topics
from .wire import Raw

_FRESH: Final = 30.0  # seconds
_PATIENCE: Final = 20.0
_decode: Final = msgspec.json.Decoder(QueueOptions).decode


class Registry:
    """What mailboxes were told about themselves."""

    def __init__(
        self,
        topic: str,
        settings: dict[str, Any],
        *,
        topics: Topics,
        producing: Producing,
    ) -> None:
        self._topic = topic
        self._settings = settings
        self._topics = topics
        self._producing = producing
        self._known: dict[str, QueueOptions] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    def known(self, name: str) -> QueueOptions:
        """A mailbox's options, as far as we have heard."""
        return self._known.get(name) or QueueOptions(name=name)

    async def read(self, *, fresh: bool = False) -> dict[str, QueueOptions]:
        """All options there are; `fresh` asks the broker whatever we know."""
        async with self._reading:
            age = None if self._read_at is None else time.monotonic() - self._read_at
            if fresh or age is None or age > _FRESH:
                self._known = await self._ask()
                self._read_at = time.monotonic()
        return self._known

    async def set(self, options: QueueOptions) -> None:
        """Remember a mailbox's options."""
        if options == self.known(options.name) == QueueOptions(name=options.name):
            return  # nothing to remember
        await self._write(options.name, msgspec.json.encode(options))
        self._known = {**self._known, options.name: options}

    async def remove(self, name: str) -> None:
        """Forget a mailbox's options."""
        if name in self._known:
            await self._write(name, None)
            self._known = {n: o for n, o in self._known.items() if n != name}

    async def _write(self, name: str, value: bytes | None) -> None:
        await self._topics.ensure(self._topic, 1, {"cleanup.policy": "compact"})
        raw = Raw(key=name.encode(), value=value, headers=[])
        await self._producing.send([Outgoing(self._topic, raw, 0)])

    async def _ask(self) -> dict[str, QueueOptions]:
        try:
            await self._topics.partitions(self._topic)
        except NotFound:
            return {}
        ends = await self._topics.ends([(self._topic, 0)])
        return await asyncio.to_thread(self._read_until, ends[self._topic, 0])

    def _read_until(self, end: int) -> dict[str, QueueOptions]:
        found: dict[str, QueueOptions] = {}
        if not end:
            return found
        quick = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        consumer = Consumer({**self._settings, **quick})
        try:
            # Asked first: left to itself the client takes half a second over it.
            consumer.list_topics(self._topic, timeout=_PATIENCE)
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            deadline = time.monotonic() + _PATIENCE
            while time.monotonic() < deadline:
                record = consumer.poll(0.5)
                if record is None:
                    continue
                error = record.error()
                if error is not None:
                    if error.code() == PARTITION_EOF:
                        break
                    raise in_our_words(error, f"reading {self._topic}")
                _apply(found, record.key(), record.value())
        except KafkaException as error:
            raise translated(error, f"reading {self._topic}") from error
        finally:
            consumer.close()
        return found


def _apply(
    found: dict[str, QueueOptions], key: bytes | None, value: bytes | None
) -> None:
    name = (key or b"").decode("utf-8", "replace")
    found.pop(name, None)
    if value is None:
        return
    try:
        options = _decode(value)
    except msgspec.DecodeError:  # not ours, or from a later version
        return
    found[name] = options
