"""
Mailboxes on RabbitMQ (3.10 or later), as quorum queues.

    amqp://user:password@host:5672/vhost
    amqps://…?cafile=&certfile=&keyfile=     with TLS
    ?heartbeat=20                            seconds; silent for two, it is gone
    ?management=15672                        port of its HTTP API, to see policies by

It keeps neither letters nor a ledger: pair it with an office.
"""

from deadletter.core.errors import ConfigError
from deadletter.ports.engine import Engine
from deadletter.ports.time import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open what a URL names, once the broker has let us in."""
    try:
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pamqp":
            raise
        raise ConfigError(
            "amqp:// needs its client: pip install 'deadletter[rabbitmq]'"
        ) from error
    return await connect(url, clock=clock)
