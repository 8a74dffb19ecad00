"""
RabbitMQ by hand: pika, prefetch, one ack for a hundred, nothing around it.

What a consumer on RabbitMQ could reach if its own code cost nothing. Durable quorum
queues, persistent messages. A failed attempt goes to the end of the same queue with
its story, the third to the dead one; none of these is waited for before its original
is acknowledged, which is faster than it is safe.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import pika

from peers.on_server import DEADLINE, play_on_server
from peers.raw import told
from workload import ATTEMPTS, BATCH, Measured, Poison, Watch, bodies, boom, must_be

QUEUE, DEAD = "raw", "raw.dead"
QUORUM = {"x-queue-type": "quorum"}


def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    channel = _filled(url, n)
    watch = Watch(n)

    def handle(properties: Any, body: bytes) -> None:
        json.loads(body)
        watch.hit()

    _drain(channel, QUEUE, n, handle)
    return _end(channel, watch.stop())


def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is dead."""
    channel = _filled(url, n)
    measured = _kill(channel, n)
    _, kept, _ = channel.basic_get(DEAD)
    found = (kept.headers["attempts"], kept.headers["history"].count("booked"))
    must_be(found, (ATTEMPTS, 2 * ATTEMPTS), "kept")
    return _end(channel, measured)


def replay(url: str, n: int) -> Measured:
    """Dead letters back to their queue."""
    channel = _filled(url, n)
    _kill(channel, n)
    watch = Watch(n)

    def back(properties: Any, body: bytes) -> None:
        watch.hit()
        _publish(channel, QUEUE, body)

    _drain(channel, DEAD, n, back)
    _await(channel, QUEUE, n)
    return _end(channel, watch.stop())


def _kill(channel: Any, n: int) -> Measured:
    watch = Watch(n)

    def fail(properties: Any, body: bytes) -> None:
        json.loads(body)
        watch.hit()
        headers = properties.headers or {}
        attempt = headers.get("attempts", 0) + 1
        try:
            boom()
        except Poison as error:
            story = headers.get("history", "") + told(error, attempt)
        queue = QUEUE if attempt < ATTEMPTS else DEAD
        _publish(channel, queue, body, {"attempts": attempt, "history": story})

    _drain(channel, QUEUE, n * ATTEMPTS, fail)
    _await(channel, DEAD, n)
    return watch.stop(n)


def _drain(channel: Any, queue: str, n: int, handle: Callable[[Any, bytes], None]) -> None:
    for done, (how, properties, body) in enumerate(channel.consume(queue), start=1):
        handle(properties, body)
        if done % BATCH == 0 or done == n:
            channel.basic_ack(how.delivery_tag, multiple=True)
        if done == n:
            break
    channel.cancel()


def _filled(url: str, n: int) -> Any:
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=10 * BATCH)
    for queue in (QUEUE, DEAD):
        channel.queue_delete(queue)
        channel.queue_declare(queue, durable=True, arguments=QUORUM)
    for one in bodies(n):
        _publish(channel, QUEUE, one)
    _await(channel, QUEUE, n)
    return channel


def _publish(channel: Any, queue: str, body: bytes, headers: dict[str, Any] | None = None) -> None:
    kept = pika.BasicProperties(delivery_mode=2, headers=headers)
    channel.basic_publish("", queue, body, kept)


def _await(channel: Any, queue: str, n: int) -> None:
    """Wait until so many are in a queue: nobody confirms what was published."""
    deadline = time.monotonic() + DEADLINE
    while channel.queue_declare(queue, passive=True).method.message_count != n:
        must_be(time.monotonic() < deadline, True, f"{n} in {queue} in time")
        channel.connection.process_data_events(0.002)


def _end(channel: Any, measured: Measured) -> Measured:
    for queue in (QUEUE, DEAD):
        channel.queue_delete(queue)
    return measured


if __name__ == "__main__":
    play_on_server(happy, poison, replay)
