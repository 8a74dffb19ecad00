"""A server as it is found: asked what it is, and connected to."""

import asyncio
from typing import Any, Final

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import (
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .address import Address
from .errors import KNOWN, at_start
from .link import Link, Now
from .pipe import Pipe
from .server import Server, look_at
from .wires import PATIENCE, Cluster, Wires

_HABITS: Final[dict[str, Any]] = {
    "protocol": 2,
    "socket_timeout": None,  # every call brings its own
    "socket_connect_timeout": 5.0,
    "health_check_interval": 30,
    # Whoever calls repeats: he knows how to tell it from a first try.
    "retry": Retry(NoBackoff(), 0),
}


async def look(address: Address) -> Server:
    """What a server says about itself; it must answer."""
    kind, options = _kind(address)
    client = Redis.from_pool(ConnectionPool(connection_class=kind, **options))
    try:
        async with asyncio.timeout(10.0):
            return await look_at(client, address.where)
    except KNOWN as error:
        raise at_start(error, address) from error
    finally:
        await client.aclose()


def linked(address: Address, now: Now) -> Link:
    """The way to a server that is alone."""
    kind, options = _kind(address)
    return Link(Pipe(kind, options), Wires(kind, options), now)


def linked_to_cluster(address: Address, now: Now) -> Link:
    """The way to a cluster one of whose nodes was named."""
    return Link(_cluster(address), _cluster(address, blocks=True), now)


def _kind(address: Address) -> tuple[type[Any], dict[str, Any]]:
    options = {**address.options, **_HABITS}
    if "path" in options:
        return UnixDomainSocketConnection, options
    options["socket_keepalive"] = True
    return SSLConnection if address.tls else Connection, options


def _cluster(address: Address, *, blocks: bool = False) -> Cluster:
    options = {**address.options, **_HABITS, "socket_keepalive": True}
    if not blocks:  # a call that is given up must not keep its connection
        options["socket_timeout"] = PATIENCE
    options.pop("db")  # a cluster has only the one
    return Cluster(RedisCluster(ssl=address.tls, **options))
