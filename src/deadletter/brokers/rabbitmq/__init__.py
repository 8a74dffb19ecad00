"""
Mailboxes on RabbitMQ (3.10 or later), as quorum queues.

    amqp://user:password@host:5672/vhost
    amqps://…?cafile=&certfile=&keyfile=     with TLS
    ?heartbeat=20                            seconds; silent for two, it is gone
    ?management=15672                        port of its HTTP API, to see policies by

It keeps neither letters nor a ledger: pair it with an office.
"""

from deadletter.kit import client_library
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open the engine of a URL, once the broker accepted our login."""
    with client_library("amqp", "rabbitmq", "pamqp"):
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    return await connect(url, clock=clock)
