"""
FastStream on Kafka (confluent): a handler for each message, uvloop.

As it comes it commits in the background before handlers have run; `acked` commits
after each, as ours does in effect. It has no attempts and no dead letters.
"""

import asyncio
import logging
from typing import Any

import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from faststream import AckPolicy
from faststream.confluent import KafkaBroker

from peers.on_server import play_on_server, setting
from workload import Measured, Watch, bodies

logging.disable(logging.CRITICAL)


async def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    servers = url.removeprefix("kafka://")
    _fill(servers, n)
    last = asyncio.Event()
    watch = Watch(n, last.set)
    broker = KafkaBroker(servers, logger=None)
    policy = AckPolicy.ACK if setting() == "acked" else AckPolicy.ACK_FIRST

    @broker.subscriber(
        "orders",
        group_id="workers",
        auto_offset_reset="earliest",
        ack_policy=policy,
        polling_interval=0.01,
    )
    async def handle(order: dict[str, Any]) -> None:
        watch.hit()

    await broker.start()
    await last.wait()
    measured = watch.stop()
    await broker.stop()
    return measured


def _fill(servers: str, n: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": servers})
    headers = {"content-type": "application/json"}
    for one in bodies(n):
        producer.produce("orders", one, headers=headers)
        producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    uvloop.install()
    play_on_server(happy)
