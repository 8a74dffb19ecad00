"""
The way to the broker: two connections, opened when needed and again when broken.

Messages go in by one and come out by the other: a broker that is short of memory
stops reading from those who publish, and acks must not get stuck behind.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from pamqp import commands as spec

from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel
from deadletter.amqp.errors import Closed, at_start, translated
from deadletter.amqp.line import Line
from deadletter.core.errors import ConfigError, Unavailable

Mail: TypeAlias = tuple[str, bytes, bytes]
"""queue, properties, body"""

_OLDEST: Final = (3, 10)


@contextmanager
def in_our_words() -> Iterator[None]:
    """Raise what the broker says as ours."""
    try:
        yield
    except (Closed, OSError) as error:
        raise translated(error) from error


class Nowhere(Unavailable):
    """Queues that messages were for do not exist."""

    def __init__(self, queues: set[str]) -> None:
        super().__init__(f"there is no queue {min(queues)} any more")
        self.queues = queues


class Link:
    """Both connections of an engine."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._out = Line(address)
        self._in = Line(address)
        self._publishing: Channel | None = None
        self._asking: Channel | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Connect for the first time; what was set up wrongly shows here."""
        try:
            connection = await self._out.connection()
        except (Closed, OSError) as error:
            address = self.address
            raise at_start(error, address) from error
        _check_version(str(connection.server.get("version", "")), self.address.where)

    async def consuming(self) -> Channel:
        """A channel of its own to receive by."""
        return await (await self._in.connection()).channel()

    async def asking(self) -> Channel:
        """A channel for questions; whoever gets it closed needs another one."""
        async with self._lock:
            if self._asking is None or self._asking.closed is not None:
                self._asking = await (await self._out.connection()).channel()
            return self._asking

    async def publish(self, mail: Sequence[Mail]) -> None:
        """Send all of it; returns when the broker has it, else nobody knows."""
        with in_our_words():
            channel = await self._publisher()
            batch = await channel.publish(mail)
        if batch.nowhere:
            raise Nowhere(batch.nowhere)
        if batch.refused:
            raise Unavailable(
                f"the broker took not all messages for {', '.join(batch.queues)}:"
                " is the queue full (x-max-length with reject-publish)?"
            )

    def reconnect(self) -> None:
        """End both connections; whoever needs one opens another."""
        self._in.end()
        self._out.end()

    async def close(self) -> None:
        """Finish what was said and close both."""
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
        return  # some other broker, or one that does not tell
    if (int(major), int(minor)) < _OLDEST:
        raise ConfigError(
            f"{where} is RabbitMQ {version}: 3.10 or later is needed, whose quorum"
            " queues can delay messages without losing any"
        )
