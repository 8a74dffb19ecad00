"""Queues of RabbitMQ: drained whatever is in them, sent back as it was."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import aiormq
import pytest
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from deadletter.brokers.rabbitmq import drain_properties as amqp_properties
from deadletter.brokers.rabbitmq.drain import RabbitMQ, near_names
from deadletter.core.errors import ConfigError, NotFound, Unavailable
from deadletter.core.failure import Reason
from deadletter.core.letter import State
from deadletter.core.message import Message
from deadletter.core.origin import marked
from deadletter.intake.dialects import Origin
from deadletter.stores.memory import MemoryEngine
from deadletter.wiring.foreign import opened_foreign
from intake.rig import drained, intake, letters, raw, recorded, sent_back
from servers import Server

_names = count(1)
NOW = datetime(2026, 5, 4, tzinfo=UTC)
_LINEAGE = (
    *("dlq-replay-of", "dlq-replay-count", "dlq-replay-campaign", "dlq-replay-to"),
    "dlq-replay-signature",
)


class Queues:
    """A queue, and the one its rejected messages go to."""

    def __init__(self, channel: AbstractChannel) -> None:
        self.channel = channel
        number = next(_names)
        self.name, self.dead = f"orders{number}", f"orders{number}.dead"

    async def make(self) -> "Queues":
        arguments: dict[str, Any] = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self.dead,
        }
        await self.channel.queue_declare(self.dead, durable=True)
        await self.channel.queue_declare(self.name, durable=True, arguments=arguments)
        return self

    async def put(self, body: bytes, queue: str, **properties: Any) -> None:
        await self.channel.basic_publish(
            body, routing_key=queue, properties=Basic.Properties(**properties)
        )

    async def replay(self, name: str, queue: str) -> None:
        """Put what a framework wrote into a queue."""
        for message in recorded(name)["messages"]:
            header = ContentHeader()
            header.unmarshal(ContentHeader().marshal()[:12] + raw(message["properties"]))
            await self.channel.basic_publish(
                raw(message["body"]), routing_key=queue, properties=header.properties
            )

    async def get(self, queue: str) -> DeliveredMessage:
        async with asyncio.timeout(5):
            while True:
                found = await self.channel.basic_get(queue)
                if found.delivery_tag is not None:
                    return found

    async def die(self) -> None:
        """Reject what is there: the broker moves it."""
        message = await self.get(self.name)
        assert message.delivery_tag is not None
        await self.channel.basic_nack(message.delivery_tag, requeue=False)


@pytest.fixture
async def rabbit(rabbitmq_server: Server) -> AsyncIterator[RabbitMQ]:
    async with opened_foreign(rabbitmq_server.url) as foreign:
        assert isinstance(foreign, RabbitMQ)
        yield foreign


@pytest.fixture
async def queues(rabbitmq_server: Server) -> AsyncIterator[Queues]:
    connection = await aiormq.connect(rabbitmq_server.url)
    yield await Queues(await connection.channel()).make()
    await connection.close()


async def test_rejected_messages_become_letters_of_their_queue(
    rabbit: RabbitMQ, queues: Queues, office: MemoryEngine
) -> None:
    headers = {"tenant": "eu", "n": 7}
    await queues.put(b"\x00body", queues.name, message_id="m-1", headers=headers)
    await queues.die()

    [letter] = await drained(rabbit.drain(queues.dead), office)

    assert letter.head.source == queues.name
    assert letter.head.message_id == "m-1"
    assert letter.head.reason is Reason.REJECTED
    assert letter.message.body == b"\x00body"
    assert dict(letter.message.headers)["tenant"] == b"eu"
    assert "x-death" not in dict(letter.message.headers)
    assert await rabbit.drain(queues.dead).depth() == 0


async def test_a_letter_goes_back_with_its_properties_as_they_were(
    rabbit: RabbitMQ, rabbitmq_server: Server, queues: Queues, office: MemoryEngine
) -> None:
    headers: dict[str, Any] = {"n": 7, "list": [1, None, {"a": True}], "t": "ü"}
    await queues.put(
        b"body",
        queues.name,
        headers=headers,
        correlation_id="c",
        message_type="order",
        priority=4,
        delivery_mode=2,
    )
    await queues.die()
    await drained(rabbit.drain(queues.dead), office)

    await sent_back(rabbit, rabbitmq_server.url, office)

    back = await queues.get(queues.name)
    properties = back.header.properties
    assert back.body == b"body"
    sent = {name: (properties.headers or {})[name] for name in headers}
    assert sent == headers
    assert "x-death" not in (properties.headers or {})
    assert (properties.correlation_id, properties.message_type) == ("c", "order")
    assert (properties.priority, properties.delivery_mode) == (4, 2)


async def test_death_headers_of_frameworks_are_not_sent_back(
    rabbit: RabbitMQ, rabbitmq_server: Server, queues: Queues, office: MemoryEngine
) -> None:
    headers: dict[str, Any] = {
        "MT-Fault-InputAddress": f"rabbitmq://box/{queues.name}",
        "MT-Fault-Message": "no stock",
        "x-opt-deaths": "[]",
        "MT-Host-MachineName": "box",
        "n": 7,
    }
    await queues.put(b"body", queues.dead, headers=headers)
    await drained(rabbit.drain(queues.dead), office)

    await sent_back(rabbit, rabbitmq_server.url, office)

    back = await queues.get(queues.name)
    sent = set(back.header.properties.headers or {})
    assert sent - {"MT-Host-MachineName", "n"} == set(_LINEAGE)


async def test_a_copy_that_dies_again_returns_to_its_letter(
    rabbit: RabbitMQ, rabbitmq_server: Server, queues: Queues, office: MemoryEngine
) -> None:
    await queues.put(b"body", queues.name)
    await queues.die()
    [first] = await drained(rabbit.drain(queues.dead), office)
    await sent_back(rabbit, rabbitmq_server.url, office)

    await queues.die()
    [second] = await drained(rabbit.drain(queues.dead), office)

    assert second.id == first.id
    assert second.head.state is State.PENDING
    assert len(await letters(office)) == 1


async def test_no_header_of_a_message_sends_it_elsewhere(
    rabbit: RabbitMQ, rabbitmq_server: Server, queues: Queues, office: MemoryEngine
) -> None:
    await queues.channel.queue_declare("payroll", durable=True)
    headers: dict[str, Any] = {"CC": ["payroll"], "BCC": ["payroll"]}
    await queues.put(b"body", queues.dead, headers=headers)
    await queues.channel.queue_purge("payroll")
    await drained(rabbit.drain(queues.dead), office)

    await sent_back(rabbit, rabbitmq_server.url, office, to=queues.name)

    await queues.get(queues.name)
    assert await rabbit.drain("payroll").depth() == 0


async def test_twins_without_an_id_are_two_letters(
    rabbit: RabbitMQ, queues: Queues, office: MemoryEngine
) -> None:
    # The client gives messages ids; other clients do not.
    bare = Basic.Properties(content_type="text/plain")
    for _ in range(2):
        await _publish_without_id(queues.channel, queues.dead, bare)

    found = await drained(rabbit.drain(queues.dead), office)

    assert len({letter.id for letter in found}) == 2


async def test_a_letter_from_nowhere_does_not_go_back_to_the_dead_queue(
    rabbit: RabbitMQ, rabbitmq_server: Server, queues: Queues, office: MemoryEngine
) -> None:
    await queues.put(b"body", queues.dead)
    [letter] = await drained(rabbit.drain(queues.dead), office)

    assert letter.head.source == queues.dead
    [why] = await sent_back(rabbit, rabbitmq_server.url, office)
    assert "--to" in why


async def test_a_celery_task_is_known_and_goes_back_to_its_queue(
    rabbit: RabbitMQ, rabbitmq_server: Server, queues: Queues, office: MemoryEngine
) -> None:
    await queues.replay("celery_rabbitmq", queues.dead)

    [letter] = await drained(rabbit.drain(queues.dead), office, "emails")
    await sent_back(rabbit, rabbitmq_server.url, office, to=queues.name)

    assert letter.head.source == "emails"
    assert letter.head.consumer == "shop.send_mail"
    assert letter.head.message_id == "11111111-aaaa-4bbb-8ccc-222222222222"
    assert letter.head.reason is Reason.REJECTED
    back = await queues.get(queues.name)
    headers = back.header.properties.headers or {}
    assert (headers["retries"], headers["timelimit"]) == (0, [None, None])
    assert back.header.properties.content_encoding == "utf-8"


async def test_a_dramatiq_message_tells_what_it_died_of(
    rabbit: RabbitMQ, queues: Queues, office: MemoryEngine
) -> None:
    await queues.replay("dramatiq_rabbitmq", queues.dead)

    [letter] = await drained(rabbit.drain(queues.dead), office, "default")

    assert letter.head.source == "default"
    assert letter.head.consumer == "charge"
    assert (letter.head.error_type, letter.head.error_text) == (
        "ValueError",
        "order o-1 has no price",
    )
    assert letter.head.attempts == 2
    assert "tasks_dramatiq.py" in letter.story()[-1].stack


async def test_looking_leaves_everything_where_it_is(
    rabbit: RabbitMQ, queues: Queues, office: MemoryEngine
) -> None:
    for number in range(5):
        await queues.put(b"look", queues.dead, message_id=f"m-{number}")

    looking = intake(rabbit.drain(queues.dead), office)
    seen = await looking.look(3)
    await looking.end()

    assert len(seen) == 3
    assert len(await drained(rabbit.drain(queues.dead), office)) == 5


async def test_many_are_drained_a_batch_at_a_time(
    rabbit: RabbitMQ, queues: Queues, office: MemoryEngine
) -> None:
    for number in range(250):
        await queues.put(b"many", queues.dead, message_id=f"m-{number}")

    found = await drained(rabbit.drain(queues.dead), office)

    assert len(found) == 250


async def test_wrong_names_and_addresses_say_what_to_do(
    rabbit: RabbitMQ, rabbitmq_server: Server
) -> None:
    with pytest.raises(NotFound, match="no queue 'nowhere'"):
        await rabbit.drain("nowhere").depth()
    with pytest.raises(ConfigError, match="user and password"):
        async with opened_foreign(rabbitmq_server.url.replace("guest:", "ghost:")):
            pass
    with pytest.raises(NotFound, match="no queue 'nowhere'"):
        await rabbit.sink("nowhere").send([Message(id="m", body=b"", sent_at=NOW)])


async def test_a_misspelt_queue_is_an_error_with_similar_names(
    rabbit: RabbitMQ, queues: Queues
) -> None:
    misspelt = queues.dead.replace(".dead", "-dlq")

    assert "orders.dead" in near_names("order.dead")
    assert "order_dead" in near_names("orders_dead")
    with pytest.raises(NotFound, match=f"did you mean '{queues.dead}'"):
        await rabbit.drain(misspelt).depth()
    with pytest.raises(NotFound, match="name the dead queues"):
        await rabbit.places()


async def test_an_unknown_way_back_is_an_error(rabbitmq_server: Server) -> None:
    with pytest.raises(ConfigError, match="back in the RabbitMQ URL must be exchange or queue"):
        async with opened_foreign(f"{rabbitmq_server.url}?back=home"):
            pass


async def test_when_a_queue_is_deleted_while_it_is_drained(
    rabbit: RabbitMQ, queues: Queues
) -> None:
    drain = rabbit.drain(queues.dead)
    assert not await drain.take(1)

    await queues.channel.queue_delete(queues.dead)

    with pytest.raises((NotFound, Unavailable)):
        await drain.take(1, wait=5)


def test_properties_that_cannot_be_read_are_none() -> None:
    assert amqp_properties.read(b"\0" * 12 + b"\xff\xff\xff") is None


def test_malformed_properties_are_read_as_none_and_never_raise() -> None:
    whole = amqp_properties.Properties(
        plain={"content_type": b"\x01a"},
        headers=[("a", b"F\0\0\0\x04\x01bt\x01"), ("x", b"I\0\0\0\x01")],
    ).written()

    assert amqp_properties.read(b"\0" * 12 + whole) is not None
    for end in range(len(whole)):
        assert amqp_properties.read(b"\0" * 12 + whole[:end]) is None


def test_tables_that_are_very_deep_are_shown_in_part() -> None:
    deep = b"V"
    for _ in range(5_000):
        deep = b"A" + len(deep).to_bytes(4, "big") + deep

    assert amqp_properties.as_bytes(amqp_properties.value_of(deep))


def test_a_letter_of_an_older_version_goes_back_with_its_properties() -> None:
    header = b"\0\x3c" + b"\0" * 10
    header += amqp_properties.Properties(plain={"priority": b"\x07"}).written()
    message = marked(Message(id="m", body=b"", sent_at=NOW), Origin("rabbitmq", "dead", raw=header))

    properties = amqp_properties.read(b"\0" * 12 + amqp_properties.written(message))

    assert properties is not None
    assert properties.plain["priority"] == b"\x07"


def test_a_letter_without_its_properties_goes_back_with_its_headers() -> None:
    message = Message(id="m", body=b"", sent_at=NOW, headers=(("tenant", b"eu"), ("odd", b"\xff")))

    written = amqp_properties.written(message)

    properties = amqp_properties.read(b"\0" * 12 + written)
    assert properties is not None
    assert dict(properties.headers or ()) == {"tenant": b"S\0\0\0\x02eu", "odd": b"S\0\0\0\x01\xff"}
    assert properties.text("message_id") == "m"
    assert properties.plain["delivery_mode"] == b"\x02"


async def _publish_without_id(
    channel: AbstractChannel, queue: str, properties: Basic.Properties
) -> None:
    from aiormq.abc import ChannelFrame

    publish = Basic.Publish(routing_key=queue)
    header = ContentHeader(properties=properties, body_size=4)
    frames = [publish, header, *channel._split_body(b"twin")]
    channel.delivery_tag += 1
    await channel.write_queue.put(
        ChannelFrame.marshall(channel_number=channel.number, frames=frames)
    )
    await channel.queue_declare(queue, passive=True)
