"""
Mailboxes, office and ledger in one PostgreSQL database.

    postgresql://user:password@host:5432/name
    ?pool=4             connections of this process, at most
    ?pgbouncer=1        the way leads through pgbouncer in transaction mode
    ?listen=URL         ...and this one past it, to be woken up; or off
"""

from deadletter.core.errors import ConfigError
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice, make: bool = True) -> Engine:
    """
    Open the database a URL names, its tables made and migrated if need be.

    With `make=False` a database without our tables is left as it is: NotFound.
    """
    try:
        from .engine import open_database  # noqa: PLC0415 -- its client is an extra
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigError(
            "postgresql:// needs its client: pip install 'deadletter[postgresql]'"
        ) from error
    return await open_database(url, clock, make=make)
