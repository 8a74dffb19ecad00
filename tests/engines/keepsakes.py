"""One thing put into each server with its own client, and looked for again."""

import asyncio

import aio_pika
import asyncpg
import nats
from aiobotocore.session import get_session
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pymongo import AsyncMongoClient
from redis.asyncio import Redis

from servers import Server

PLACE = "keepsakes"


async def put_postgresql(server: Server, thing: bytes) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute(f"CREATE TABLE IF NOT EXISTS {PLACE} (thing bytea)")
    await connection.execute(f"INSERT INTO {PLACE} VALUES ($1)", thing)
    await connection.close()


async def has_postgresql(server: Server, thing: bytes) -> bool:
    connection = await asyncpg.connect(server.url)
    count = f"SELECT count(*) FROM {PLACE} WHERE thing = $1"
    found = await connection.fetchval(count, thing)
    await connection.close()
    return bool(found == 1)


async def put_redis(server: Server, thing: bytes) -> None:
    async with Redis.from_url(server.url) as client:
        await client.set(f"{PLACE}:{thing!r}", thing)


async def has_redis(server: Server, thing: bytes) -> bool:
    async with Redis.from_url(server.url) as client:
        return bool(await client.get(f"{PLACE}:{thing!r}") == thing)


async def put_nats(server: Server, thing: bytes) -> None:
    client = await nats.connect(server.url)
    stream = client.jetstream()
    await stream.add_stream(name=PLACE, subjects=[PLACE])
    await stream.publish(PLACE, thing)
    await client.close()


async def has_nats(server: Server, thing: bytes) -> bool:
    client = await nats.connect(server.url)
    last = await client.jetstream().get_last_msg(PLACE, PLACE)
    await client.close()
    return last.data == thing


async def put_mongodb(server: Server, thing: bytes) -> None:
    async with AsyncMongoClient[dict[str, object]](server.url) as client:
        await client.dlq[PLACE].insert_one({"thing": thing})


async def has_mongodb(server: Server, thing: bytes) -> bool:
    async with AsyncMongoClient[dict[str, object]](server.url) as client:
        return await client.dlq[PLACE].count_documents({"thing": thing}) == 1


async def put_rabbitmq(server: Server, thing: bytes) -> None:
    async with await aio_pika.connect(server.url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.declare_queue(PLACE, durable=True)
        kept = aio_pika.Message(thing, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(kept, PLACE)


async def has_rabbitmq(server: Server, thing: bytes) -> bool:
    async with await aio_pika.connect(server.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(PLACE, durable=True)
        found = await queue.get(no_ack=True)
        return found.body == thing


async def put_kafka(server: Server, thing: bytes) -> None:
    def put() -> None:
        where = {"bootstrap.servers": server.url.removeprefix("kafka://")}
        admin = AdminClient(where)  # its answers end with it
        admin.create_topics([NewTopic(PLACE, 1, 1)])[PLACE].result(30)
        producer = Producer({**where, "acks": "all"})
        producer.produce(PLACE, thing)
        assert producer.flush(30) == 0

    await asyncio.to_thread(put)


async def has_kafka(server: Server, thing: bytes) -> bool:
    def has() -> bool:
        consumer = Consumer(
            {
                "bootstrap.servers": server.url.removeprefix("kafka://"),
                "group.id": PLACE,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([PLACE])
        record = consumer.poll(30)
        consumer.close()
        return record is not None and record.value() == thing

    return await asyncio.to_thread(has)


def sqs(server: Server):
    return get_session().create_client(
        "sqs",
        region_name="eu-west-1",
        endpoint_url=server.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


async def put_sqs(server: Server, thing: bytes) -> None:
    async with sqs(server) as client:
        queue = await client.create_queue(QueueName=PLACE)
        url = queue["QueueUrl"]
        await client.send_message(QueueUrl=url, MessageBody=thing.decode())


async def has_sqs(server: Server, thing: bytes) -> bool:
    async with sqs(server) as client:
        url = (await client.get_queue_url(QueueName=PLACE))["QueueUrl"]
        found = await client.receive_message(QueueUrl=url, WaitTimeSeconds=2)
        return [one["Body"] for one in found.get("Messages", [])] == [thing.decode()]
