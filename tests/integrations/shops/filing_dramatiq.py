"""A shop on Dramatiq with one middleware more."""

import os

import dramatiq
import dying
import till
from dramatiq.brokers.redis import RedisBroker

from deadletter.integrations.dramatiq import DeadLetters

dying.arm()
broker = RedisBroker(url=till.URL, heartbeat_timeout=1_000, maintenance_chance=1_000_000)
broker.add_middleware(
    DeadLetters(os.environ["OFFICE"], timeout=float(os.environ.get("TIMEOUT", "10")))
)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="shop", max_retries=0)
def charge(order: str, token: str = "", note: str = "") -> None:
    till.charge(order)


@dramatiq.actor(queue_name="shop", max_retries=2, min_backoff=10)
def deliver(order: str) -> None:
    till.charge(order)


def send(order: str, actor: str = "charge", **more: str) -> None:
    {"charge": charge, "deliver": deliver}[actor].send(order, **more)
