"""
Producers that write headers of ours by hand, with the clients anybody has.

Each knows how an engine packs a message, and has no key: that is all it takes to write
what we write. On Redis nobody writes such a thing by hand: an engine of ours does it.
"""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import aiormq
import msgspec
import nats
import pytest
from aiobotocore.session import get_session
from confluent_kafka import Producer
from pamqp.commands import Basic

from deadletter.core.message import Lineage, Message
from deadletter.system import SystemClock
from deadletter.wiring.engines import open_engine
from engines import bullmq_rig, kafka_rig, nats_rig, redis_rig, sqs_rig
from servers import Server
from servers.sqs import Sqs

SENT_AT: Final = 1_700_000_000_000_000  # microseconds
_run: Final = uuid4().hex[:6]
_numbers: Final = count(1)


class Lie(msgspec.Struct, frozen=True, kw_only=True):
    """A message as somebody else writes it."""

    id: str
    body: bytes
    headers: dict[str, bytes] = {}
    lineage: Lineage | None = None
    attempts: int | None = None


class Kafka:
    """Written with confluent-kafka."""

    def __init__(self, server: Server) -> None:
        self.url = kafka_rig.fresh(server.url)
        self._bootstrap = urlsplit(server.url).netloc
        self._prefix = parse_qs(urlsplit(self.url).query)["prefix"][0]

    async def send(self, mailbox: str, lie: Lie) -> None:
        headers: list[tuple[str, bytes]] = list(lie.headers.items())
        headers += [("dlq-message-id", lie.id.encode())]
        headers += [("dlq-sent-at", str(SENT_AT).encode())]
        if lie.lineage is not None:
            told = msgspec.structs.asdict(lie.lineage)
            headers += [("dlq-lineage", json.dumps(told).encode())]
        if lie.attempts is not None:
            headers += [("dlq-attempt", str(lie.attempts).encode())]
            headers += [("dlq-spared", b"0"), ("dlq-suspect", b"0")]
            headers += [("dlq-history", b"")]
        producer = Producer({"bootstrap.servers": self._bootstrap})
        producer.produce(self._prefix + mailbox, lie.body, headers=headers)
        assert await asyncio.to_thread(producer.flush, 10) == 0


class RabbitMQ:
    """Written with aiormq."""

    def __init__(self, server: Server) -> None:
        self.url = server.url

    async def send(self, mailbox: str, lie: Lie) -> None:
        headers: dict[str, Any] = {n: v.decode() for n, v in lie.headers.items()}
        if lie.lineage is not None:
            more = {"at": SENT_AT, "lineage": lie.lineage}
            headers["dlq-more"] = bytearray(msgspec.msgpack.encode(more))
        if lie.attempts is not None:
            headers["dlq-attempt"], headers["dlq-spared"] = lie.attempts, 0
        connection = await aiormq.connect(self.url)
        channel = await connection.channel()
        properties = Basic.Properties(message_id=lie.id, headers=headers)
        await channel.basic_publish(lie.body, routing_key=mailbox, properties=properties)
        await connection.close()


class Nats:
    """Written with nats-py."""

    def __init__(self, server: Server) -> None:
        self.url = nats_rig.fresh(server.url)
        self._server = server.url
        self._prefix = parse_qs(urlsplit(self.url).query)["prefix"][0]

    async def send(self, mailbox: str, lie: Lie) -> None:
        pairs = tuple(lie.headers.items())
        rest = {"id": lie.id, "sent_at": "2023-11-14T22:13:20Z"}
        more = {"headers": pairs, "lineage": lie.lineage}
        told = msgspec.json.encode(rest | {k: v for k, v in more.items() if v})
        client = await nats.connect(self._server)
        await client.jetstream().publish(
            f"{self._prefix}.{mailbox}", lie.body, headers={"dlq-message": told.decode()}
        )
        await client.close()


class SqsQueues:
    """Written with botocore."""

    def __init__(self, server: Server) -> None:
        self.url = sqs_rig.url_of(server)
        self._server = server.url
        self._prefix = parse_qs(urlsplit(self.url).query)["prefix"][0]

    async def send(self, mailbox: str, lie: Lie) -> None:
        pairs = tuple(lie.headers.items())
        extra = msgspec.msgpack.encode([pairs, *[None] * 6, lie.lineage])
        sent_at = datetime.fromtimestamp(SENT_AT / 1e6, UTC)
        slip = [lie.id.encode(), sent_at, None, extra, "text", lie.attempts or 0]
        packed = msgspec.msgpack.encode(slip)
        async with get_session().create_client(
            "sqs",
            region_name=Sqs.region,
            endpoint_url=self._server,
            aws_access_key_id=Sqs.access_key,
            aws_secret_access_key=Sqs.secret_key,
        ) as client:
            queue = await client.get_queue_url(QueueName=self._prefix + mailbox)
            await client.send_message(
                QueueUrl=queue["QueueUrl"],
                MessageBody=lie.body.decode(),
                MessageAttributes={"dlq": {"DataType": "Binary", "BinaryValue": packed}},
            )


class OnRedis:
    """Written by an engine like the one that reads it, which has no key."""

    def __init__(self, server: Server, fresh: Callable[[str], str]) -> None:
        self.url = fresh(server.url)

    async def send(self, mailbox: str, lie: Lie) -> None:
        message = Message(
            id=lie.id,
            body=lie.body,
            sent_at=SystemClock().now(),
            headers=tuple(lie.headers.items()),
            lineage=lie.lineage,
        )
        engine = await open_engine(self.url, office="memory://", office_durability="none")
        await engine.broker.sink(mailbox).send([message])
        await engine.close()


Forger = Kafka | RabbitMQ | Nats | SqsQueues | OnRedis

_FORGERS: Final[dict[str, tuple[str, Callable[[Server], Forger]]]] = {
    "kafka": ("kafka_server", Kafka),
    "rabbitmq": ("rabbitmq_server", RabbitMQ),
    "nats": ("nats_server", Nats),
    "sqs": ("sqs_server", SqsQueues),
    "redis": ("redis_server", lambda server: OnRedis(server, redis_rig.fresh)),
    "bullmq": ("redis_server", lambda server: OnRedis(server, bullmq_rig.fresh)),
}
ENGINES: Final = tuple(_FORGERS)
COUNTING: Final = ("kafka", "rabbitmq", "sqs")
"""Those whose messages carry how often they were tried."""


def forger_on(engine: str, request: pytest.FixtureRequest) -> Forger:
    """Somebody who writes to one of the servers."""
    fixture, kind = _FORGERS[engine]
    return kind(request.getfixturevalue(fixture))


def unused(name: str) -> str:
    """A mailbox that no test has used: not every broker has prefixes."""
    return f"{name}-{_run}-{next(_numbers)}"
