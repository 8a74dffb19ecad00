"""A shop on RQ: what fails is in the failed registry."""

import till
from redis import Redis
from rq import Queue


def charge(order: str) -> None:
    till.charge(order)


def send(order: str) -> None:
    Queue("shop", connection=Redis.from_url(till.URL)).enqueue(charge, order)
