"""
Clients of RabbitMQ compared: how fast each drains one queue, with acks.

    python bench/amqp_clients.py [--messages 20000] [--rounds 5]

The figures behind ADR 12. Every client consumes the same durable quorum queue of
persistent messages of 256 bytes: prefetch 1,000, one multiple ack per 100 messages, and
nothing done with a body. A round ends when the broker has answered the close of the
channel, after the last ack. Rounds of the clients alternate. Peers that are not
installed are left out.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from importlib.metadata import version
from typing import Any

from pamqp import commands as spec

from deadletter.brokers.amqp.address import read_url
from deadletter.brokers.amqp.connection import connect
from deadletter.brokers.amqp.frames import ack
from deadletter.brokers.rabbitmq.drain_properties import PERSISTENT
from grounds import servers

QUEUE = "clients"
PREFETCH, BATCH = 1_000, 100
QUORUM: Any = {"x-queue-type": "quorum"}
Drain = Callable[[str, int], Awaitable[None]]


async def ours(url: str, n: int) -> None:
    """Drain with `deadletter.brokers.amqp`."""
    connection = await connect(read_url(url))
    channel = await connection.channel()
    done = asyncio.get_running_loop().create_future()
    count = 0

    def delivered(content: Any) -> None:
        nonlocal count
        count += 1
        if not count % BATCH:
            connection.send(ack(channel.number, content.tag, multiple=True))
            if count == n:
                done.set_result(None)

    channel.on_deliver = delivered
    await channel.call(spec.Basic.Qos(prefetch_count=PREFETCH))
    await channel.call(spec.Basic.Consume(queue=QUEUE, consumer_tag="bench"))
    await done
    await channel.leave()
    await connection.close()


async def pika_blocking(url: str, n: int) -> None:
    """Drain with pika's blocking loop."""
    await asyncio.to_thread(_pika_blocking, url, n)


def _pika_blocking(url: str, n: int) -> None:
    import pika  # noqa: PLC0415 -- a peer, perhaps not installed

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    count = 0

    def delivered(_: Any, method: Any, __: Any, ___: Any) -> None:
        nonlocal count
        count += 1
        if not count % BATCH:
            channel.basic_ack(method.delivery_tag, multiple=True)
            if count == n:
                channel.stop_consuming()

    channel.basic_consume(QUEUE, delivered)
    channel.start_consuming()
    channel.close()
    connection.close()


async def pika_asyncio(url: str, n: int) -> None:
    """Drain with pika's adapter for asyncio."""
    import pika  # noqa: PLC0415
    from pika.adapters.asyncio_connection import AsyncioConnection  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    opened, closed = loop.create_future(), loop.create_future()
    connection = AsyncioConnection(
        pika.URLParameters(url),
        on_open_callback=opened.set_result,
        on_close_callback=lambda *_: closed.set_result(None),
        custom_ioloop=loop,
    )
    await opened
    ready, done, left = loop.create_future(), loop.create_future(), loop.create_future()
    connection.channel(on_open_callback=ready.set_result)
    channel: Any = await ready
    channel.add_on_close_callback(lambda *_: left.set_result(None))
    limited = loop.create_future()
    channel.basic_qos(prefetch_count=PREFETCH, callback=limited.set_result)
    await limited
    count = 0

    def delivered(_: Any, method: Any, __: Any, ___: Any) -> None:
        nonlocal count
        count += 1
        if not count % BATCH:
            channel.basic_ack(method.delivery_tag, multiple=True)
            if count == n:
                done.set_result(None)

    channel.basic_consume(QUEUE, delivered)
    await done
    channel.close()
    await left
    connection.close()
    await closed


async def aio_pika(url: str, n: int) -> None:
    """Drain with aio-pika's callback."""
    import aio_pika as peer  # noqa: PLC0415

    connection = await peer.connect(url)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=PREFETCH)
    queue = await channel.get_queue(QUEUE)
    done = asyncio.get_running_loop().create_future()
    count = 0

    async def delivered(message: Any) -> None:
        nonlocal count
        count += 1
        if not count % BATCH:
            await message.ack(multiple=True)
            if count == n:
                done.set_result(None)

    await queue.consume(delivered)
    await done
    await channel.close()
    await connection.close()


async def aiormq(url: str, n: int) -> None:
    """Drain with aiormq, the layer below aio-pika."""
    import aiormq as peer  # noqa: PLC0415

    connection = await peer.connect(url)
    channel = await connection.channel()
    await channel.basic_qos(prefetch_count=PREFETCH)
    done = asyncio.get_running_loop().create_future()
    count = 0

    async def delivered(message: Any) -> None:
        nonlocal count
        count += 1
        if not count % BATCH:
            await channel.basic_ack(message.delivery.delivery_tag, multiple=True)
            if count == n:
                done.set_result(None)

    await channel.basic_consume(QUEUE, delivered)
    await done
    await channel.close()
    await connection.close()


async def py_amqp(url: str, n: int) -> None:
    """Drain with py-amqp, Celery's client."""
    await asyncio.to_thread(_py_amqp, url, n)


def _py_amqp(url: str, n: int) -> None:
    import amqp as peer  # noqa: PLC0415

    address = read_url(url)
    connection = peer.Connection(host=address.where, userid=address.user, password=address.password)
    connection.connect()
    channel = connection.channel()
    channel.basic_qos(0, PREFETCH, False)
    count = 0

    def delivered(message: Any) -> None:
        nonlocal count
        count += 1
        if not count % BATCH:
            channel.basic_ack(message.delivery_tag, multiple=True)

    channel.basic_consume(QUEUE, callback=delivered)
    while count < n:
        connection.drain_events()
    channel.close()
    connection.close()


CLIENTS: dict[str, tuple[Drain, str]] = {
    "ours": (ours, "deadletter"),
    "pika, blocking loop": (pika_blocking, "pika"),
    "pika, asyncio adapter": (pika_asyncio, "pika"),
    "aio-pika": (aio_pika, "aio-pika"),
    "aiormq": (aiormq, "aiormq"),
    "py-amqp": (py_amqp, "amqp"),
}
REFERENCE = "pika, blocking loop"


async def fill(url: str, n: int) -> None:
    """Put `n` messages into an empty queue."""
    connection = await connect(read_url(url))
    channel = await connection.channel()
    await channel.call(spec.Queue.Delete(queue=QUEUE))
    await channel.call(spec.Queue.Declare(queue=QUEUE, durable=True, arguments=QUORUM))
    await channel.call(spec.Confirm.Select())
    body = b"x" * 256
    for start in range(0, n, 1_000):
        await channel.publish([(QUEUE, PERSISTENT, body)] * min(1_000, n - start))
    await connection.close()


async def drain(name: str, url: str, n: int) -> tuple[float, float]:
    """Drain the queue once; messages per second, and microseconds of our processor each."""
    await fill(url, n)
    wall, busy = time.perf_counter(), time.process_time()
    async with asyncio.timeout(300):
        await CLIENTS[name][0](url, n)
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    return n / wall, busy / n * 1e6


def main() -> None:
    """Run the rounds and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    missing: set[str] = set()
    server = servers.RabbitMQ()
    with closing(server):
        server.start()
        for _ in range(given.rounds):
            for name in [name for name in CLIENTS if name not in missing]:
                try:
                    rate, cost = asyncio.run(drain(name, server.url, given.messages))
                except ModuleNotFoundError:
                    missing.add(name)
                    continue
                rates.setdefault(name, []).append(rate)
                costs.setdefault(name, []).append(cost)
                print(f"  {name:24} {rate:9,.0f}/s  {cost:6.1f} µs", flush=True)
    usual = statistics.median(rates[REFERENCE])
    print(f"{'client':24} {'version':>10} {'median/s':>10} {'ratio':>6} {'µs CPU':>7}")
    for name, (_, package) in CLIENTS.items():
        if name not in missing:
            rate, cost = statistics.median(rates[name]), statistics.median(costs[name])
            print(f"{name:24} {version(package):>10} {rate:10,.0f} {rate / usual:6.2f} {cost:7.1f}")


if __name__ == "__main__":
    main()
