"""
Office and ledger in a MongoDB database; messages stay where they are.

    mongodb://user:password@host:27017/name?replicaSet=rs0
    mongodb+srv://…     the same, with the servers looked up
    ?prefix=shop_       before the name of every collection
    ?documents=courier  gives documents the fields of the courier gateway as well
    ?review=in-order    lets people replay only what is reviewed, and close what is replayed
"""

from deadletter.kit import client_library
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice, make: bool = True) -> Engine:
    """
    Open the database of a URL; its collections are created if need be.

    With `make=False`, raise NotFound if the database has no collections of ours.
    """
    with client_library("mongodb", "mongodb", "pymongo", "bson"):
        from .engine import open_database  # noqa: PLC0415 -- needs the client, an extra
    return await open_database(url, clock=clock, dice=dice, make=make)
