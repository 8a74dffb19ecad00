"""
Mailboxes that are queues of BullMQ (6) on Redis or Valkey (6.2 or later).

    bullmq://user:password@host:6379/0    bullmqs:// with TLS
    bullmq+unix:///path/to/redis.sock     ?db=0 there instead of a path
    ?prefix=bull                          of all keys, as in BullMQ's own options

Producers and workers written for BullMQ use the same queues at the same time. It
keeps no letters: pair it with an office. Time is the server's.
"""

from deadletter.kit import client_library
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open the engine of a URL; the server must answer."""
    with client_library("bullmq", "bullmq", "redis", "hiredis"):
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    return await connect(url)
