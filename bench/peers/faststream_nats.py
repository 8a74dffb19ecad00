"""
FastStream on NATS JetStream: pulls of a hundred, a handler for each message, uvloop.

It acknowledges after the handler. It has no attempts of its own and no dead letters.
"""

import asyncio
import logging
from typing import Any

import nats
import uvloop
from faststream.nats import JStream, NatsBroker, PullSub
from nats.js.api import RetentionPolicy

from peers.on_server import play_on_server, until
from workload import BATCH, Measured, Watch, bodies

logging.disable(logging.CRITICAL)

QUEUE = "orders"


async def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    connection = await nats.connect(url)
    stream = connection.jetstream()
    await stream.add_stream(name=QUEUE, subjects=[QUEUE], retention=RetentionPolicy.WORK_QUEUE)
    headers = {"content-type": "application/json"}
    ready = bodies(n)
    for start in range(0, n, BATCH):
        some = ready[start : start + BATCH]
        sent = [await stream.publish_async(QUEUE, o, headers=headers) for o in some]
        await asyncio.gather(*sent)
    last = asyncio.Event()
    watch = Watch(n, last.set)
    broker = NatsBroker(url, logger=None)

    @broker.subscriber(
        QUEUE,
        stream=JStream(QUEUE, declare=False),
        durable="workers",
        pull_sub=PullSub(batch_size=BATCH, timeout=1.0),
    )
    async def handle(order: dict[str, Any]) -> None:
        watch.hit()

    async def is_empty() -> bool:
        return (await stream.stream_info(QUEUE)).state.messages == 0

    await broker.start()
    await last.wait()
    await until(is_empty)
    measured = watch.stop()
    await broker.stop()
    await connection.close()
    return measured


if __name__ == "__main__":
    uvloop.install()
    play_on_server(happy)
