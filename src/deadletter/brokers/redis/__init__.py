"""
Mailboxes and ledger in Redis or Valkey (6.2 or later).

    redis://user:password@host:6379/0     rediss:// with TLS; valkey://, valkeys:// too
    redis+unix:///path/to/redis.sock      ?db=0 there instead of a path
    ?prefix=shop                          of all our keys; dlq unless said otherwise

It keeps no letters: pair it with an office. Time is the server's.
"""

from deadletter.kit import client_library
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open the engine of a URL; the server must answer."""
    with client_library("redis", "redis", "redis", "hiredis"):
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    return await connect(url)
