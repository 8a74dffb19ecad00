"""
Celery on RabbitMQ: its solo pool, 128 messages in hand, no gossip.

As it comes it acknowledges before the handler runs; late where failures are to be
kept, which only the application's own Reject does: to a dead-letter exchange,
without the error. It has no replay. Its queues are classic ones.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pika
from celery import Celery
from celery.exceptions import Reject
from celery.worker import state
from kombu import Exchange, Queue

from peers.on_server import play_on_server, wait_for
from workload import ATTEMPTS, Measured, Poison, Watch, body, boom

logging.disable(logging.CRITICAL)

QUEUE, DEAD = "celery", "celery.dead"
TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}


def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    last = threading.Event()
    watch = Watch(n, last.set)
    app = _app(url)

    @app.task(name="order", ignore_result=True)
    def handle(order: dict[str, Any]) -> None:
        watch.hit()

    _fill(handle, n)
    return _working(app, url, last, lambda depth: depth(QUEUE) == 0, watch.stop)


def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is in the dead queue."""
    last = threading.Event()
    watch = Watch(n * ATTEMPTS, last.set)
    app = _app(url, task_acks_late=True)

    @app.task(name="order", bind=True, max_retries=ATTEMPTS - 1)
    def handle(self: Any, order: dict[str, Any]) -> None:
        watch.hit()
        try:
            boom()
        except Poison as error:
            if self.request.retries == ATTEMPTS - 1:
                raise Reject(error, requeue=False) from error
            raise self.retry(exc=error, countdown=0) from error

    _fill(handle, n)
    return _working(app, url, last, lambda depth: depth(DEAD) == n, lambda: watch.stop(n))


def _app(url: str, **settings: Any) -> Celery:
    app = Celery("peer", broker=url)
    app.conf.update(
        task_default_queue=QUEUE,
        task_queues=[
            Queue(QUEUE, Exchange(QUEUE), routing_key=QUEUE, queue_arguments=TO_DEAD),
            Queue(DEAD),
        ],
        task_default_exchange=QUEUE,
        task_default_routing_key=QUEUE,
        worker_prefetch_multiplier=128,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        **settings,
    )
    return app


def _fill(task: Any, n: int) -> None:
    with task.app.connection_for_write() as connection:
        for queue in task.app.conf.task_queues:
            queue(connection.default_channel).declare()
        with task.app.amqp.Producer(connection) as producer:
            for number in range(n):
                task.apply_async((body(number),), producer=producer)


def _working(
    app: Celery,
    url: str,
    last: threading.Event,
    is_done: Callable[[Callable[[str], int]], bool],
    stop: Callable[[], Measured],
) -> Measured:
    found: list[Measured] = []
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0
    channel = pika.BlockingConnection(parameters).channel()

    def depth(queue: str) -> int:
        return int(channel.queue_declare(queue, passive=True).method.message_count)

    def watching() -> None:
        wait_for(last, lambda: is_done(depth))
        found.append(stop())
        state.should_stop = 0

    watcher = threading.Thread(target=watching, daemon=True)
    watcher.start()
    worker = app.Worker(
        pool="solo",
        concurrency=1,
        queues=[QUEUE],
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    with suppress(SystemExit):  # how it ends
        worker.start()
    watcher.join()
    for queue in (QUEUE, DEAD):
        channel.queue_delete(queue)
    return found[0]


if __name__ == "__main__":
    play_on_server(happy, poison)
