"""
Dramatiq on Redis or RabbitMQ: eight threads, 128 messages in hand.

It acknowledges after the handler. What failed for good is in a dead queue for seven
days, with its last stack; no command and no call brings it back. Its queues on
RabbitMQ are classic ones.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

# It reads these when imported.
os.environ["dramatiq_queue_prefetch"] = "128"  # noqa: SIM112
os.environ["dramatiq_delay_queue_prefetch"] = "8000"  # noqa: SIM112

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker

from peers.on_server import play_on_server, wait_for
from workload import ATTEMPTS, Measured, Watch, body, boom

logging.disable(logging.CRITICAL)

QUEUE = "dramatiq"


def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    last = threading.Event()
    watch = Watch(n, last.set)
    broker = _filled(url, n, watch.hit)

    def is_empty() -> bool:
        if isinstance(broker, RedisBroker):
            return bool(broker.client.hlen(f"dramatiq:{QUEUE}.msgs") == 0)
        return sum(broker.get_queue_message_counts(QUEUE)) == 0

    return _working(broker, last, is_empty, watch.stop)


def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is in the dead queue."""
    last = threading.Event()
    watch = Watch(n * ATTEMPTS, last.set)

    def fail() -> None:
        watch.hit()
        boom()

    broker = _filled(url, n, fail)

    def are_dead() -> bool:
        if isinstance(broker, RedisBroker):
            return bool(broker.client.zcard(f"dramatiq:{QUEUE}.XQ") == n)
        return bool(broker.get_queue_message_counts(QUEUE)[2] == n)

    return _working(broker, last, are_dead, lambda: watch.stop(n))


def _working(
    broker: Any, last: threading.Event, is_done: Callable[[], bool], stop: Callable[[], Measured]
) -> Measured:
    worker = dramatiq.Worker(broker, worker_threads=8)
    worker.start()
    wait_for(last, is_done)
    measured = stop()
    worker.stop()
    if isinstance(broker, RabbitmqBroker):
        for queue in (QUEUE, f"{QUEUE}.DQ", f"{QUEUE}.XQ"):
            broker.channel.queue_delete(queue)
    return measured


def _filled(url: str, n: int, on_call: Callable[[], None]) -> Any:
    is_redis = url.startswith("redis")
    broker = RedisBroker(url=url) if is_redis else RabbitmqBroker(url=url)
    dramatiq.set_broker(broker)

    @dramatiq.actor(queue_name=QUEUE, max_retries=ATTEMPTS - 1, min_backoff=1, max_backoff=1)
    def handle(order: dict[str, Any]) -> None:
        on_call()

    for number in range(n):
        handle.send(body(number))
    return broker


if __name__ == "__main__":
    play_on_server(happy, poison)
