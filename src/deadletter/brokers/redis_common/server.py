"""A server that a URL names: its durability, and connections to it."""

import asyncio
from typing import Any, Final

from msgspec import Struct
from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from deadletter.core.errors import ConfigError
from deadletter.ports.features import Durability

from .address import ERRORS, Address, opening_error
from .connections import PATIENCE, BlockingConnections, ClusterConnections, SharedConnection
from .script_runner import Now, ScriptRunner


class ServerFacts(Struct, frozen=True):
    """Facts that a server reports about itself."""

    durability: Durability
    in_cluster: bool


async def _inspect(client: Any, where: str) -> ServerFacts:
    """Return what a server reports; refuse one that evicts keys when its memory is full."""
    said = await client.info()
    policy = str(said.get("maxmemory_policy", "noeviction"))
    if said.get("maxmemory") and policy.startswith("allkeys"):
        raise ConfigError(
            f"{where} deletes messages when its memory is full (maxmemory-policy {policy}):"
            " set it to noeviction"
        )
    return ServerFacts(await _durability(client, said), said.get("cluster_enabled") == 1)


async def _durability(client: Any, said: dict[str, Any]) -> Durability:
    """Return how durable a write is that the server has confirmed."""
    if not said.get("aof_enabled"):
        return Durability.NONE
    try:
        settings = await client.config_get("appendfsync")
    except ResponseError:  # managed servers hide it: claim what is certain
        return Durability.KILL_SAFE
    if settings.get("appendfsync") == "always":
        return Durability.POWER_SAFE
    return Durability.KILL_SAFE


_HABITS: Final[dict[str, Any]] = {
    "protocol": 2,
    "socket_timeout": None,  # every call has its own
    "socket_connect_timeout": 5.0,
    "health_check_interval": 30,
    # Callers repeat calls: they mark a repetition as one.
    "retry": Retry(NoBackoff(), 0),
}


def client_of(address: Address) -> Any:
    """Return a client of the library; it connects with the first command."""
    kind, options = _kind(address)
    options["socket_timeout"] = PATIENCE
    return Redis.from_pool(ConnectionPool(connection_class=kind, **options))


async def inspect_server(address: Address) -> ServerFacts:
    """Return what a server reports about itself; raise if it does not answer."""
    client = client_of(address)
    try:
        async with asyncio.timeout(10.0):
            return await _inspect(client, address.where)
    except ERRORS.known as error:
        raise opening_error(error, address) from error
    finally:
        await client.aclose()


def connect_server(address: Address, now: Now) -> ScriptRunner:
    """Return a runner on a single server."""
    kind, options = _kind(address)
    return ScriptRunner(SharedConnection(kind, options), BlockingConnections(kind, options), now)


def connect_cluster(address: Address, now: Now) -> ScriptRunner:
    """Return a runner on a cluster; the address is that of one of its nodes."""
    return ScriptRunner(_cluster(address), _cluster(address, blocks=True), now)


def _kind(address: Address) -> tuple[type[Any], dict[str, Any]]:
    options = {**address.options, **_HABITS}
    if "path" in options:
        return UnixDomainSocketConnection, options
    options["socket_keepalive"] = True
    return SSLConnection if address.tls else Connection, options


def _cluster(address: Address, *, blocks: bool = False) -> ClusterConnections:
    options = {**address.options, **_HABITS, "socket_keepalive": True}
    if not blocks:  # a call that timed out must not keep its connection
        options["socket_timeout"] = PATIENCE
    options.pop("db")  # a cluster has only one
    return ClusterConnections(RedisCluster(ssl=address.tls, **options))
