"""
Mailboxes, office and ledger in one PostgreSQL database.

    postgresql://user:password@host:5432/name
    ?pool=4             connections of this process, at most
    ?pgbouncer=1        the URL leads to pgbouncer in transaction mode
    ?listen=URL         a URL past pgbouncer, to listen for notifications; or off
"""

from deadletter.kit import client_library
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice, make: bool = True) -> Engine:
    """
    Open the database of a URL; its tables are created and migrated if need be.

    With `make=False`, raise NotFound if the database has no tables of ours.
    """
    with client_library("postgresql", "postgresql", "asyncpg"):
        from .engine import open_database  # noqa: PLC0415 -- needs the client, an extra
    return await open_database(url, clock, make=make)
