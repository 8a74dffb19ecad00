"""Records of others whose keys are not text: kept, moved and sent back as they were."""

import asyncio
from pathlib import Path

from confluent_kafka import Producer

from deadletter.app import App
from deadletter.brokers.kafka.address import read_url
from engines.kafka_rig import fresh
from office.journey import follow
from servers import Server


async def test_a_key_that_is_not_text_comes_through_every_step(
    kafka_server: Server, tmp_path: Path
) -> None:
    url = fresh(kafka_server.url)
    here, there = (f"sqlite:///{tmp_path}/{name}.db" for name in ("here", "there"))
    async with App(url, office=here) as app:
        source = (await app.engine()).broker.source("orders")
        assert await source.receive(limit=1, wait=0, lease=30) == []
        servers = kafka_server.url.removeprefix("kafka://")
        producer = Producer({"bootstrap.servers": servers})
        producer.produce(read_url(url).topic("orders"), b"hello", b"\xff\x00\xed\xa0")
        await asyncio.to_thread(producer.flush, 10)
        async with App("memory://", office=there) as elsewhere:
            (letter,) = await follow(app, elsewhere, "orders")

    assert letter.message.key == "\udcff\0\udced\udca0"
    assert letter.message.body == b"hello"
