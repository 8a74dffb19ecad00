"""A shop on Dramatiq whose broker has a namespace of its own."""

import dramatiq
import till
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=till.URL, namespace="market"))


@dramatiq.actor(queue_name="shop", max_retries=1, min_backoff=10)
def charge(order: str) -> None:
    till.charge(order)


def send(order: str) -> None:
    charge.send(order)
