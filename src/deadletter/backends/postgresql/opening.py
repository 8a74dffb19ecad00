"""Making the tables, or saying in one sentence why the database cannot be used."""

from typing import Final

from msgspec.structs import replace

from deadletter.core.errors import ConfigError
from deadletter.ports.features import Durability, Features

from .address import Address
from .errors import TROUBLE, explained
from .features import FEATURES
from .pool import connect
from .schema import migrate

_OLDEST: Final = 14
_SERVER: Final = """
SELECT current_setting('server_version_num')::int / 10000,
    current_setting('server_encoding'), current_setting('fsync') = 'on',
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names')
"""


async def prepare(address: Address) -> Features:
    """
    Bring the tables up to date and say what the server promises.

    Raises ConfigError with what to do when that cannot be.
    """
    try:
        connection = await connect(address)
        try:
            version, encoding, *durable = await connection.fetchrow(_SERVER)
            _check(version, encoding, address)
            await migrate(connection)
        finally:
            connection.terminate()
    except TROUBLE as error:
        raise explained(error, address.shown) from error
    except ValueError as error:  # the client library's own reading of the URL
        raise ConfigError(f"the PostgreSQL URL cannot be read: {error}") from error
    return replace(FEATURES, durability=_durability(*durable))


def _check(version: int, encoding: str, address: Address) -> None:
    if version < _OLDEST:
        raise ConfigError(
            f"PostgreSQL at {address.shown} is of version {version}:"
            f" use {_OLDEST} or newer"
        )
    if encoding != "UTF8":
        raise ConfigError(
            f"the database at {address.shown} is encoded as {encoding}: use one in UTF8"
            " (createdb --encoding=UTF8 --template=template0 NAME)"
        )


def _durability(fsync: bool, commit: str, standbys: str) -> Durability:
    if not fsync or commit == "off":
        return Durability.KILL_SAFE
    if standbys and commit != "local":
        return Durability.REPLICATED
    return Durability.POWER_SAFE
