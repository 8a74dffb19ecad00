"""
RabbitMQ by hand: aio-pika, prefetch, one ack for a hundred, nothing around it.

What an asyncio consumer on RabbitMQ could reach with this client. Durable quorum
queues, persistent messages, publisher confirms. A failed attempt goes to the end of
the same queue with its story, the third to the dead one.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
from aio_pika import DeliveryMode, Message

from peers.on_server import play_on_server
from peers.raw import told
from workload import ATTEMPTS, BATCH, Measured, Poison, Watch, bodies, boom, must_be

QUEUE, DEAD = "aio-pika", "aio-pika.dead"
QUORUM: Any = {"x-queue-type": "quorum"}


async def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    async with _filled(url, n) as channel:
        watch = Watch(n)

        async def handle(message: Any) -> None:
            json.loads(message.body)
            watch.hit()

        await _drain(channel, QUEUE, n, handle)
        return watch.stop()


async def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is dead."""
    async with _filled(url, n) as channel:
        measured = await _kill(channel, n)
        must_be(await _count(channel, DEAD), n, "dead")
        kept = await (await channel.get_queue(DEAD)).get()
        found = (kept.headers["attempts"], kept.headers["history"].count("booked"))
        must_be(found, (ATTEMPTS, 2 * ATTEMPTS), "kept")
        return measured


async def replay(url: str, n: int) -> Measured:
    """Dead letters back to their queue."""
    async with _filled(url, n) as channel:
        await _kill(channel, n)
        watch = Watch(n)

        async def back(message: Any) -> None:
            watch.hit()
            await _publish(channel, QUEUE, message.body)

        await _drain(channel, DEAD, n, back)
        measured = watch.stop()
        must_be(await _count(channel, QUEUE), n, "queued")
        return measured


async def _kill(channel: Any, n: int) -> Measured:
    watch = Watch(n)

    async def fail(message: Any) -> None:
        json.loads(message.body)
        watch.hit()
        attempt = message.headers.get("attempts", 0) + 1
        try:
            boom()
        except Poison as error:
            story = message.headers.get("history", "") + told(error, attempt)
        queue = QUEUE if attempt < ATTEMPTS else DEAD
        kept = {"attempts": attempt, "history": story}
        await _publish(channel, queue, message.body, kept)

    await _drain(channel, QUEUE, n * ATTEMPTS, fail)
    return watch.stop(n)


async def _drain(channel: Any, name: str, n: int, handle: Callable[[Any], Awaitable[None]]) -> None:
    # What has arrived is handled at once, side by side, then acknowledged in one go.
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    queue = await channel.get_queue(name)
    tag = await queue.consume(arrived.put)
    done = 0
    while done < n:
        taken = [await arrived.get()]
        while not arrived.empty() and len(taken) < BATCH:
            taken.append(arrived.get_nowait())
        await asyncio.gather(*map(handle, taken))
        await taken[-1].ack(multiple=True)
        done += len(taken)
    await queue.cancel(tag)


@asynccontextmanager
async def _filled(url: str, n: int) -> AsyncIterator[Any]:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=2 * BATCH)
        for name in (QUEUE, DEAD):
            await channel.declare_queue(name, durable=True, arguments=QUORUM)
        ready = bodies(n)
        for start in range(0, n, BATCH):
            some = ready[start : start + BATCH]
            await asyncio.gather(*(_publish(channel, QUEUE, one) for one in some))
        yield channel
        for name in (QUEUE, DEAD):
            await channel.queue_delete(name)


async def _publish(
    channel: Any, queue: str, body: bytes, headers: dict[str, Any] | None = None
) -> None:
    message = Message(body, headers=headers, delivery_mode=DeliveryMode.PERSISTENT)
    await channel.default_exchange.publish(message, queue)


async def _count(channel: Any, name: str) -> int:
    queue = await channel.declare_queue(name, passive=True)
    return int(queue.declaration_result.message_count)


if __name__ == "__main__":
    play_on_server(happy, poison, replay)
