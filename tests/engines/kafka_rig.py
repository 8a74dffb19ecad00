"""Engines on the test broker, each with topics and groups of its own."""

from itertools import count
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer

from deadletter.brokers.kafka.engine import KafkaEngine, connect
from deadletter.ports import Clock

_numbers = count(1)
_run = uuid4().hex[:8]
_producers: dict[str, Producer] = {}


def fresh(url: str, **parameters: Any) -> str:
    """The URL with topics and a group that nobody has used."""
    name = f"t{_run}-{next(_numbers)}-"
    given = {"prefix": name, "group": f"{name}group", "partitions": 1, **parameters}
    return f"{url}/?" + "&".join(f"{key}={value}" for key, value in given.items())


async def opened(url: str, clock: Clock) -> KafkaEngine:
    """
    The engine that a URL names, with a producer that all of them share.

    The client library takes half a second to get a new one ready.
    """
    engine = await connect(url, clock=clock)
    settings = engine._sender._settings
    broker = settings["bootstrap.servers"]
    if broker not in _producers:
        _producers[broker] = Producer(settings)
    engine._sender._producer = _producers[broker]
    return engine


async def see_all(engine: KafkaEngine, mailbox: str) -> None:
    """Have the engine work a mailbox, and see all that is in it."""
    member = await engine.mailboxes.box(mailbox).member()
    await member.catch_up()


def silenced(engine: KafkaEngine, mailbox: str) -> None:
    """Have the engine leave a mailbox's groups without a word about what it held."""
    member = engine.mailboxes.box(mailbox).present
    assert member is not None
    for thread in member._poll_threads:
        thread.committer.commit_final = lambda _: None  # type: ignore[method-assign]
