"""Whoever can send to a dead queue can write what others write there."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any
from uuid import uuid4

import aiormq
import nats
import pytest
from aiobotocore.session import get_session
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pamqp.commands import Basic

from core.dialect_rig import read
from deadletter.core.burial import to_message
from deadletter.core.letter import By, DeadLetter, GroupStatus, Standing, State
from deadletter.ports import Foreign, Move
from deadletter.stores.memory import MemoryEngine
from deadletter.wiring.foreign import opened_foreign
from intake.rig import drained, sent_back, store
from servers import Server
from servers.sqs import Sqs

pytestmark = pytest.mark.engines  # its servers are asked for by and by

_run = uuid4().hex[:6]
_numbers = count(1)
BY = By("anna", "done")
CLAIMS = {
    "x-first-death-queue": "payments",
    "kafka_dlt-original-topic": "payments",
    "kafka_dlt-exception-message": "card declined",
    "MT-Fault-InputAddress": "rabbitmq://box/payments",
    "topic_poisoned": "payments",
    "reason_poisoned": "card declined",
}
Put = Callable[[str, dict[str, str]], Any]


class Place:
    """A dead queue that anybody may send to, on one of the brokers."""

    def __init__(self, url: str, foreign: Foreign, name: str, put: Put) -> None:
        self.url = url
        self.foreign = foreign
        self.name = name
        self.put = put


async def on_rabbitmq(server: Server, name: str) -> tuple[str, Put]:
    async def put(queue: str, headers: dict[str, str]) -> None:
        connection = await aiormq.connect(server.url)
        channel = await connection.channel()
        await channel.queue_declare(queue, durable=True)
        await channel.basic_publish(
            b"body",
            routing_key=queue,
            properties=Basic.Properties(message_id="p-1", headers=dict(headers)),
        )
        await connection.close()

    return server.url, put


async def on_kafka(server: Server, name: str) -> tuple[str, Put]:
    bootstrap = {"bootstrap.servers": server.url.removeprefix("kafka://")}

    async def put(topic: str, headers: dict[str, str]) -> None:
        admin = AdminClient(bootstrap)
        await asyncio.to_thread(admin.create_topics([NewTopic(topic, 1)])[topic].result)
        producer = Producer(bootstrap)
        pairs = [(name, text.encode()) for name, text in headers.items()]
        producer.produce(topic, b"body", headers=[*pairs, ("dlq-message-id", b"p-1")])
        assert await asyncio.to_thread(producer.flush, 10) == 0

    return server.url, put


async def on_nats(server: Server, name: str) -> tuple[str, Put]:
    async def put(stream: str, headers: dict[str, str]) -> None:
        client = await nats.connect(server.url)
        jetstream = client.jetstream()
        await jetstream.add_stream(name=stream, subjects=[stream])
        sent = {name: text.replace("\n", " ") or "-" for name, text in headers.items()}
        sent["Nats-Msg-Id"] = "p-1"
        await jetstream.publish(stream, b"body", headers=sent)
        await client.close()

    return server.url, put


async def on_sqs(server: Server, name: str) -> tuple[str, Put]:
    place = server.url.removeprefix("http://")
    keys = f"{Sqs.access_key}:{Sqs.secret_key}"

    async def put(queue: str, headers: dict[str, str]) -> None:
        # SQS takes ten attributes: those that say most.
        wanted = ("dlq-id", "dlq-source", "dlq-fingerprint", *CLAIMS)
        attributes = {
            name: {"DataType": "String", "StringValue": headers[name]}
            for name in wanted
            if headers.get(name)
        }
        async with get_session().create_client(
            "sqs",
            region_name=Sqs.region,
            endpoint_url=server.url,
            aws_access_key_id=Sqs.access_key,
            aws_secret_access_key=Sqs.secret_key,
        ) as client:
            made = await client.create_queue(QueueName=queue)
            await client.send_message(
                QueueUrl=made["QueueUrl"], MessageBody="body", MessageAttributes=attributes
            )

    return f"sqs+http://{keys}@{place}?region={Sqs.region}", put


_BROKERS = {"rabbitmq": on_rabbitmq, "kafka": on_kafka, "nats": on_nats, "sqs": on_sqs}


@pytest.fixture(params=sorted(_BROKERS))
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    server = request.getfixturevalue(f"{request.param}_server")
    name = f"leftovers-{_run}-{next(_numbers)}"
    url, put = await _BROKERS[request.param](server, name)
    async with opened_foreign(url) as foreign:
        yield Place(url, foreign, name, put)


async def closed_letter(office: MemoryEngine) -> DeadLetter:
    """A letter of the mailbox `payments`, closed, in a group that is muted."""
    letter = read(place="payments-dlq", id="p-1", headers=CLAIMS)
    assert letter.head.source == "payments"
    letters = store(office)
    await letters.keep([letter])
    muted = Standing(status=GroupStatus.MUTED)
    await letters.set_group(letter.head.fingerprint, muted, BY)
    move = Move(ids=(letter.id,), old=frozenset(State), new=State.CLOSED)
    await letters.move(move, BY)
    [kept] = await letters.get([letter.id])
    assert kept.head.state is State.CLOSED
    return kept


@pytest.mark.parametrize("kind", ["claims", "copy"])
async def test_headers_lead_neither_into_another_mailbox_nor_to_its_letters(
    place: Place, office: MemoryEngine, kind: str
) -> None:
    before = await closed_letter(office)
    ours = {name: value.decode() for name, value in to_message(before).headers}
    lies = {name: text for name, text in ours.items() if name.startswith("dlq-")}
    lies.pop("dlq-found", None)
    await place.put(place.name, CLAIMS if kind == "claims" else lies)

    [letter] = await drained(place.foreign.drain(place.name), office)

    assert letter.head.source == place.name
    assert letter.head.fingerprint != before.head.fingerprint
    assert await store(office).get([before.id]) == [before]
    # Nor does a replay lead there, unless somebody says so.
    [why] = await sent_back(place.foreign, place.url, office)
    assert "--to" in why
