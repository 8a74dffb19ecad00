"""
Mailboxes that are queues of BullMQ (6) on Redis or Valkey (6.2 or later).

    bullmq://user:password@host:6379/0    bullmqs:// with TLS
    bullmq+unix:///path/to/redis.sock     ?db=0 there instead of a path
    ?prefix=bull                          of all keys, as in BullMQ's own options

Producers and workers written for BullMQ use the same queues at the same time. It
keeps no letters: pair it with an office. Time is the server's.
"""

from deadletter.backends._redis.needed import client_needed
from deadletter.ports.engine import Engine
from deadletter.ports.time import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open what a URL names, once the server has answered."""
    with client_needed("bullmq"):
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    return await connect(url)
