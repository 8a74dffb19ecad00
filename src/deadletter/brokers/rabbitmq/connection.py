"""
The connections of an engine: one to publish, one to consume, opened again when broken.

A broker that is short of memory stops reading from publishers. Acks travel on the other
connection, so they do not get stuck.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

from pamqp import commands as spec

from deadletter.brokers.amqp.address import Address
from deadletter.brokers.amqp.channel import Channel
from deadletter.brokers.amqp.connection import Reconnector
from deadletter.brokers.amqp.errors import ERRORS, Closed, at_start
from deadletter.core.errors import ConfigError, Unavailable

Mail: TypeAlias = tuple[str, bytes, bytes]
"""Queue, properties and body of a message"""

_OLDEST: Final = (3, 10)
translating: Final = ERRORS.translated


class QueuesMissing(Unavailable):
    """The queues of messages do not exist."""

    def __init__(self, queues: set[str]) -> None:
        super().__init__(f"the queue {min(queues)} does not exist any more")
        self.queues = queues


class Link:
    """Both connections of an engine."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._out = Reconnector(address)
        self._in = Reconnector(address)
        self._publishing: Channel | None = None
        self._asking: Channel | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Connect for the first time; a wrong URL or login raises ConfigError."""
        try:
            connection = await self._out.connection()
        except (Closed, OSError) as error:
            address = self.address
            raise at_start(error, address) from error
        _check_version(str(connection.server.get("version", "")), self.address.where)

    async def consuming(self) -> Channel:
        """Open a channel to consume on."""
        return await (await self._in.connection()).channel()

    async def asking(self) -> Channel:
        """Return the channel for declarations; a failed one closes it."""
        async with self._lock:
            if self._asking is None or self._asking.closed is not None:
                self._asking = await (await self._out.connection()).channel()
            return self._asking

    async def publish(self, mail: Sequence[Mail]) -> None:
        """Publish messages and wait for their confirms; after an error some may be stored."""
        with translating():
            channel = await self._publisher()
            batch = await channel.publish(mail)
        if batch.nowhere:
            raise QueuesMissing(batch.nowhere)
        if batch.refused:
            raise Unavailable(
                f"the broker rejected messages for {', '.join(batch.queues)}:"
                " is the queue full (x-max-length with reject-publish)?"
            )

    def reconnect(self) -> None:
        """End both connections; the next use opens others."""
        self._in.end()
        self._out.end()

    async def close(self) -> None:
        """Close both in order."""
        await self._in.close()
        await self._out.close()

    async def _publisher(self) -> Channel:
        async with self._lock:
            if self._publishing is None or self._publishing.closed is not None:
                channel = await (await self._out.connection()).channel()
                await channel.call(spec.Confirm.Select())
                self._publishing = channel
            return self._publishing


def _check_version(version: str, where: str) -> None:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        return  # another broker, or one without a version
    if (int(major), int(minor)) < _OLDEST:
        raise ConfigError(
            f"{where} is RabbitMQ {version}: 3.10 or later is needed, whose quorum"
            " queues can delay messages without losing any"
        )
