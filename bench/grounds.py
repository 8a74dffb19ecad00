"""
Where the contest of the engines takes place: a private server for each.

Servers are those of the tests, set up as one would run them for real, the same for
everybody in one run. Before each turn everything is removed from them.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import nats
import redis.asyncio as redis
from aiobotocore.session import get_session
from confluent_kafka.admin import AdminClient
from msgspec import Struct

from contest import BENCH

sys.path.append(str(BENCH.parent / "tests"))

import servers

Missing = servers.Missing
Cleaning = Callable[[str], Awaitable[str]]


class EverySecond(servers.Redis):
    """Writes reach the disk every second, which is how most run it."""

    def command(self) -> list[str]:
        return [*super().command(), "--appendfsync", "everysec"]


class Swift(servers.Kafka):
    """Writes reach the disk when the system likes; the machine code is the best."""

    def prepare(self) -> None:
        super().prepare()
        settings = self.directory / "server.properties"
        text = settings.read_text().replace("log.flush.interval.messages=1\n", "")
        settings.write_text(text)

    def command(self) -> list[str]:
        quick = "-XX:TieredStopAtLevel=1"
        return [word for word in super().command() if word != quick]


class Unhurried(servers.Nats):
    """Writes reach the disk when the server likes, which is how it comes."""

    def prepare(self) -> None:
        super().prepare()
        settings = self.directory / "nats.conf"
        text = settings.read_text().replace(', sync_interval: "always"', "")
        settings.write_text(text)


async def _database(url: str) -> str:
    """Another database: nobody works beside what the last one left to be vacuumed."""
    db = await asyncpg.connect(url)
    await db.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
    await db.execute("CREATE DATABASE bench")
    await db.execute("CHECKPOINT")
    await db.close()
    return urlunsplit(urlsplit(url)._replace(path="/bench"))


async def _flushed(url: str) -> str:
    async with redis.Redis.from_url(url) as db:
        await db.flushall()
    return url


async def _without_queues(url: str) -> str:
    async with get_session().create_client(
        "sqs",
        endpoint_url=url,
        region_name=servers.Sqs.region,
        aws_access_key_id=servers.Sqs.access_key,
        aws_secret_access_key=servers.Sqs.secret_key,
    ) as client:
        for queue in (await client.list_queues()).get("QueueUrls", ()):
            await client.delete_queue(QueueUrl=queue)
    return url


async def _without_topics(url: str) -> str:
    """With its topics go the offsets of their groups."""
    place = url.removeprefix("kafka://")
    admin = AdminClient({"bootstrap.servers": place, "log_level": 0})
    there = [name for name in admin.list_topics().topics if not name.startswith("__")]
    for gone in (admin.delete_topics(there) if there else {}).values():
        gone.result()
    return url


async def _without_streams(url: str) -> str:
    connection = await nats.connect(url)
    streams = connection.jetstream()
    for stream in await streams.streams_info():
        await streams.delete_stream(stream.config.name or "")
    await connection.close()
    return url


async def _as_it_is(url: str) -> str:
    """RabbitMQ cannot be asked for its queues: everybody removes his own."""
    return url


class Ground(Struct, frozen=True):
    """A kind of server, how it is set up, and how it is emptied."""

    server: type[servers.Server]
    setup: str
    clean: Cleaning

    @contextmanager
    def opened(self) -> Iterator[Callable[[], str]]:
        """
        A server for the run: call what this gives for its URL, with nothing in it.

        Raises Missing where there is no such server.
        """
        server = self.server()
        try:
            server.start()
            yield lambda: asyncio.run(_cleaned(self, server.url))
        finally:
            server.close()


async def _cleaned(ground: Ground, url: str) -> str:
    return await ground.clean(url)


GROUNDS = {
    "postgresql": Ground(servers.PostgreSQL, "fsync on, synchronous_commit on", _database),
    "redis": Ground(EverySecond, "appendonly yes, appendfsync everysec", _flushed),
    "sqs": Ground(servers.Sqs, "the emulator ministack, in memory", _without_queues),
    "kafka": Ground(Swift, "one broker, acks all, its own flushing", _without_topics),
    "rabbitmq": Ground(servers.RabbitMQ, "durable queues, confirms", _as_it_is),
    "nats": Ground(Unhurried, "JetStream on file, its own syncing", _without_streams),
}
