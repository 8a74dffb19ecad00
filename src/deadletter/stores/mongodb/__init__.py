"""
Office and ledger in a MongoDB database; messages stay where they are.

    mongodb://user:password@host:27017/name?replicaSet=rs0
    mongodb+srv://…     the same, with the servers looked up
    ?prefix=shop_       before the name of every collection
"""

from deadletter.core.errors import ConfigError
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice, make: bool = True) -> Engine:
    """
    Open the database a URL names, its collections made if need be.

    With `make=False` a database without our collections is left as it is: NotFound.
    """
    try:
        from .engine import open_database  # noqa: PLC0415 -- its client is an extra
    except ModuleNotFoundError as error:
        if error.name not in {"pymongo", "bson"}:
            raise
        raise ConfigError(
            "mongodb:// needs its client: pip install 'deadletter[mongodb]'"
        ) from error
    return await open_database(url, clock=clock, dice=dice, make=make)
