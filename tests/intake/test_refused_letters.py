"""Real servers that do not take one letter: the others go back, each of them once."""

from base64 import b64encode
from typing import Any
from zlib import compress

import aiormq
from msgspec import structs
from nats.js import api
from pamqp.commands import Basic
from redis import Redis

from deadletter.brokers.nats.drain import Nats
from deadletter.brokers.sqs.drain import SqsAccount
from deadletter.core.campaign import Outcome
from deadletter.core.letter import DeadLetter
from deadletter.stores.memory import MemoryEngine
from deadletter.wiring.foreign import opened_foreign
from intake.rig import BY, drained, letters, sent_back, store
from servers import Server


async def outcomes(office: MemoryEngine) -> dict[bytes, tuple[Outcome, str]]:
    """What became of each letter by its body, and why it was refused."""
    found = await letters(office)
    items = await store(office).replays([one.id for one in found])
    bodies = {one.id: one.as_it_died.body for one in found}
    return {bodies[one.letter_id]: (one.outcome, one.why) for one in items}


async def edit(office: MemoryEngine, letter: DeadLetter, **changes: Any) -> None:
    message = structs.replace(letter.message, **changes)
    await store(office).edit(letter.id, message, revision=letter.head.revision, by=BY)


async def test_a_deleted_rabbitmq_queue_does_not_stop_another(
    rabbitmq_server: Server, office: MemoryEngine
) -> None:
    url = rabbitmq_server.url
    connection = await aiormq.connect(url)
    channel = await connection.channel()
    async with opened_foreign(url) as foreign:
        for queue in ("refusing-a", "refusing-b"):
            dead = f"{queue}.dead"
            arguments: Any = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
            await channel.queue_declare(dead, durable=True)
            await channel.queue_declare(queue, durable=True, arguments=arguments)
            for n in range(2):
                body = f"{queue} {n}".encode()
                named = Basic.Properties(message_id=f"{queue}-{n}")
                await channel.basic_publish(body, routing_key=queue, properties=named)
            for _ in range(2):
                found = await channel.basic_get(queue)
                assert found.delivery_tag is not None
                await channel.basic_reject(found.delivery_tag, requeue=False)
            assert len(await drained(foreign.drain(dead), office)) == 2
        await channel.queue_delete("refusing-a")

        await sent_back(foreign, url, office)

    told = await outcomes(office)
    assert told[b"refusing-b 0"][0] is told[b"refusing-b 1"][0] is Outcome.SENT
    gone = (Outcome.REFUSED, "there is no queue 'refusing-a' on that broker")
    assert told[b"refusing-a 0"] == told[b"refusing-a 1"] == gone
    declared = await channel.queue_declare("refusing-b", passive=True)
    assert declared.message_count == 2
    for queue in ("refusing-b", "refusing-a.dead", "refusing-b.dead"):
        await channel.queue_delete(queue)
    await connection.close()


async def test_a_message_that_nats_refuses_does_not_stop_the_others(
    nats_server: Server, office: MemoryEngine
) -> None:
    async with opened_foreign(nats_server.url) as foreign:
        assert isinstance(foreign, Nats)
        for name, subject in (("REFUSINGDLQ", "rdead"), ("REFUSING", "rback")):
            await foreign.link.client.jetstream().add_stream(
                api.StreamConfig(name=name, subjects=[subject], max_msg_size=2_000)
            )
        for n in range(3):
            await foreign.link.client.jetstream().publish("rdead", b"%d" % n)
        found = await drained(foreign.drain("REFUSINGDLQ"), office)
        one = next(letter for letter in found if letter.message.body == b"1")
        await edit(office, one, body=b"x" * 3_000)

        await sent_back(foreign, nats_server.url, office, to="rback")

        told = await outcomes(office)
        info = await foreign.link.client.jetstream().stream_info("REFUSING")
        for name in ("REFUSINGDLQ", "REFUSING"):
            await foreign.link.client.jetstream().delete_stream(name)
    assert {told[b"0"][0], told[b"2"][0]} == {Outcome.SENT}
    assert told[b"1"][0] is Outcome.REFUSED
    assert "size" in told[b"1"][1]
    assert info.state.messages == 2


async def test_a_body_that_sqs_refuses_does_not_stop_the_others(
    sqs_server: Server, office: MemoryEngine
) -> None:
    place = sqs_server.url.removeprefix("http://")
    url = f"sqs+http://test:test@{place}?region=eu-west-1"
    async with opened_foreign(url) as foreign:
        assert isinstance(foreign, SqsAccount)
        for name in ("refusing-dlq", "refusing"):
            await foreign.call("create_queue", QueueName=name)
        dead = await foreign.url("refusing-dlq")
        for n in range(12):
            await foreign.call("send_message", QueueUrl=dead, MessageBody=f"{n:02}")
        found = await drained(foreign.drain("refusing-dlq"), office)
        one = next(letter for letter in found if letter.message.body == b"03")
        await edit(office, one, body=b"no such \x00 character")

        await sent_back(foreign, url, office, to="refusing")

        told = await outcomes(office)
        left = await foreign.drain("refusing").depth()
        for name in ("refusing-dlq", "refusing"):
            await foreign.call("delete_queue", QueueUrl=await foreign.url(name))
    assert told.pop(b"03")[0] is Outcome.REFUSED
    assert {outcome for outcome, _ in told.values()} == {Outcome.SENT}
    assert (len(told), left) == (11, 11)


async def test_a_queue_that_redis_refuses_does_not_stop_another(
    redis_server: Server, office: MemoryEngine
) -> None:
    client: Any = Redis.from_url(redis_server.url)
    client.flushdb()
    stack = b64encode(compress(b"ValueError: no"))
    for queue in ("a", "b"):
        for n in range(2):
            job = f"{queue}-{n}"
            client.hset(f"rq:job:{job}", mapping={"data": job, "exc_info": stack})
            client.zadd(f"rq:failed:{queue}", {job: n})
    async with opened_foreign(redis_server.url) as foreign:
        for queue in ("a", "b"):
            assert len(await drained(foreign.drain(f"rq:{queue}"), office)) == 2
        client.set("rq:queue:a", "somebody's text")

        await sent_back(foreign, redis_server.url, office)

    told = await outcomes(office)
    assert client.lrange("rq:queue:b", 0, -1) == [b"b-0", b"b-1"]
    assert {told[b"b-0"][0], told[b"b-1"][0]} == {Outcome.SENT}
    assert {told[b"a-0"][0], told[b"a-1"][0]} == {Outcome.REFUSED}
    client.flushdb()
    client.close()
