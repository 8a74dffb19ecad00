"""A dead queue of RabbitMQ, and a server whose settings name it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import aiormq
from msgspec.structs import replace
from pamqp.commands import Basic

from deadletter.server.context import ServerContext
from deadletter.settings import IntakePlace, Settings, SourceServer
from deadletter.wiring.intakes import Intakes

_numbers = count(1)


class DeadQueue:
    """A queue of a broker, with what somebody rejected."""

    def __init__(self, channel: aiormq.abc.AbstractChannel, url: str) -> None:
        self.url = url
        self.name = f"taken{next(_numbers)}.dead"
        self._channel = channel

    async def put(self, *bodies: bytes) -> None:
        for body in bodies:
            properties = Basic.Properties(message_id=f"m-{body.decode(errors='replace')}")
            await self._channel.basic_publish(body, routing_key=self.name, properties=properties)

    async def depth(self) -> int:
        found = await self._channel.queue_declare(self.name, passive=True)
        assert found.message_count is not None
        return found.message_count


@asynccontextmanager
async def a_dead_queue(url: str) -> AsyncIterator[DeadQueue]:
    """Make a queue, and delete it afterwards."""
    connection = await aiormq.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    queue = DeadQueue(channel, url)
    await channel.queue_declare(queue.name, durable=True)
    try:
        yield queue
    finally:
        await channel.queue_delete(queue.name)
        await connection.close()


def with_intakes(context: ServerContext, settings: Settings) -> ServerContext:
    """Return the context of a server with these settings."""
    intakes = Intakes(
        settings,
        letters=context.store,
        ring=context.office.ring,
        clock=context.clock,
        dice=context.dice,
        observe=context.observe,
    )
    return replace(context, settings=settings, intakes=intakes)


def settings_of(url: str, place: str, **more: bool) -> Settings:
    """Return settings with one intake, named `orders-dead`."""
    return Settings(
        sources={"shop": SourceServer(url=url)},
        intake=(IntakePlace(name="orders-dead", server="shop", place=place, **more),),
    )


NOWHERE = "amqp://guest:s3cret-word@127.0.0.1:9/"
"""A server that is not there."""
