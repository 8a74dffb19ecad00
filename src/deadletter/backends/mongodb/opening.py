"""Making the collections, or saying in one sentence why the server cannot be used."""

from typing import Any, Final

from msgspec.structs import replace

from deadletter.core.errors import ConfigError
from deadletter.ports.features import Durability, Features
from deadletter.ports.time import Dice

from .address import Address
from .database import Client, Database, connect
from .errors import TROUBLE, explained
from .features import FEATURES
from .schema import prepare
from .versions import fill

_OLDEST: Final = 13  # the wire version of MongoDB 5.0, the first with snapshot reads


async def open_checked(address: Address, dice: Dice) -> tuple[Database, Features]:
    """
    Connect, bring the collections up to date and say what the server promises.

    Raises ConfigError with what to do when that cannot be.
    """
    try:
        client = connect(address)
    except TROUBLE as error:
        raise explained(error, address.shown) from error
    except ValueError as error:  # the client library's own reading of the URL
        raise ConfigError(f"the MongoDB URL cannot be read: {error}") from error
    try:
        database = Database(address, client, dice)
        features = features_of(await _hello(client, address))
        await prepare(database.there)
        await fill(database.there)
    except BaseException as error:
        await client.close()
        if isinstance(error, TROUBLE):
            raise explained(error, address.shown) from error
        raise
    return database, features


async def _hello(client: Client, address: Address) -> dict[str, Any]:
    hello = await client.admin.command("hello")
    is_router = hello.get("msg") == "isdbgrid"
    if not is_router and "setName" not in hello:
        raise ConfigError(
            f"MongoDB at {address.shown} is a standalone server, which has no"
            " transactions, and without them a letter could be kept and not counted,"
            " or moved and not audited: make it a replica set, of one member if need"
            " be (mongod --replSet rs0, then rs.initiate() once)"
        )
    if hello["maxWireVersion"] < _OLDEST:
        raise ConfigError(f"MongoDB at {address.shown} is too old: use 5.0 or newer")
    return hello


def features_of(hello: dict[str, Any]) -> Features:
    """What a server promises, by what it says of itself."""
    # Every write waits for a majority, and for the journals. Of a sharded cluster
    # nobody tells us how many that is.
    members = len(hello.get("hosts", [])) + len(hello.get("passives", []))
    durable = Durability.REPLICATED if members > 1 else Durability.POWER_SAFE
    return replace(FEATURES, durability=durable)
