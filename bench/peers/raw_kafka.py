"""
Kafka by hand: confluent-kafka, batches of 100, a commit after each, nothing around it.

What a consumer on Kafka could reach if its own code cost nothing. A failed attempt
goes to the end of the same topic with its story, the third to the dead one.
"""

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from peers.on_server import play_on_server
from peers.raw import told
from workload import ATTEMPTS, BATCH, Measured, Poison, Watch, bodies, boom, must_be

QUEUE, DEAD = "orders", "orders.dead"


def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    producer = _filled(url, n)
    watch = Watch(n)

    def handle(taken: list[Any]) -> None:
        for message in taken:
            json.loads(message.value())
            watch.hit()

    return _drain(producer, url, QUEUE, n=n, watch=watch, handle=handle)


def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is dead."""
    return _kill(_filled(url, n), url, n)


def replay(url: str, n: int) -> Measured:
    """Dead letters back to their queue."""
    producer = _filled(url, n)
    _kill(producer, url, n)
    watch = Watch(n)

    def back(taken: list[Any]) -> None:
        for message in taken:
            watch.hit()
            producer.produce(QUEUE, message.value())

    return _drain(producer, url, DEAD, n=n, watch=watch, handle=back)


def _kill(producer: Producer, url: str, n: int) -> Measured:
    watch = Watch(n)
    kept: list[tuple[int, int]] = []

    def fail(taken: list[Any]) -> None:
        for message in taken:
            json.loads(message.value())
            watch.hit()
            headers = dict(message.headers() or ())
            attempt = int(headers.get("attempts", 0)) + 1
            try:
                boom()
            except Poison as error:
                story = headers.get("history", b"").decode() + told(error, attempt)
            if attempt == ATTEMPTS:
                kept.append((attempt, story.count("booked")))
            told_with = {"attempts": str(attempt), "history": story}
            topic = QUEUE if attempt < ATTEMPTS else DEAD
            producer.produce(topic, message.value(), headers=told_with)

    measured = _drain(producer, url, QUEUE, n=n * ATTEMPTS, watch=watch, handle=fail)
    must_be((len(kept), kept[0]), (n, (ATTEMPTS, 2 * ATTEMPTS)), "dead and kept")
    return Measured(n, measured.seconds, measured.cpu_seconds)


def _drain(
    producer: Producer,
    url: str,
    topic: str,
    *,
    n: int,
    watch: Watch,
    handle: Callable[[list[Any]], None],
) -> Measured:
    consumer = Consumer(
        {
            "bootstrap.servers": _servers(url),
            "group.id": f"workers-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.subscribe([topic])
    done = 0
    while done < n:
        taken = [one for one in consumer.consume(BATCH, 1.0) if not one.error()]
        if not taken:
            continue
        handle(taken)
        producer.flush()
        consumer.commit(asynchronous=False)
        done += len(taken)
    measured = watch.stop(n)
    consumer.close()
    return measured


def _filled(url: str, n: int) -> Producer:
    admin = AdminClient({"bootstrap.servers": _servers(url)})
    topics = [NewTopic(name, 1, 1) for name in (QUEUE, DEAD)]
    for made in admin.create_topics(topics).values():
        made.result()
    producer = Producer(
        {
            "bootstrap.servers": _servers(url),
            "enable.idempotence": True,
            "linger.ms": 2,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for one in bodies(n):
        producer.produce(QUEUE, one)
    producer.flush()
    return producer


def _servers(url: str) -> str:
    return url.removeprefix("kafka://")


if __name__ == "__main__":
    play_on_server(happy, poison, replay)
