"""The engine: opened, checked, closed."""

import asyncio
from typing import Any, Final

from msgspec.structs import replace
from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import (
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.features import Features
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman

from .address import Address, read_url
from .errors import KNOWN, at_start
from .features import FEATURES
from .keys import Keys
from .ledger import RedisLedger
from .link import Link, Now, server_time
from .mailboxes import RedisBroker
from .pipe import Pipe
from .registry import Registry
from .server import Server, look_at
from .wires import Cluster, Wires

_HABITS: Final[dict[str, Any]] = {
    "protocol": 2,
    "socket_timeout": None,  # every call brings its own
    "socket_connect_timeout": 5.0,
    "health_check_interval": 30,
    # Whoever calls repeats: he knows how to tell it from a first try.
    "retry": Retry(NoBackoff(), 0),
}


class RedisEngine:
    """Mailboxes and ledger on one server or cluster. It keeps no letters."""

    def __init__(self, link: Link, keys: Keys, features: Features) -> None:
        self.features = features
        registry = Registry(link, keys)
        self.broker: Broker = RedisBroker(link, registry, features)
        self.letters: LetterStore | None = None
        self.ledger: Ledger | None = RedisLedger(link, keys)
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        self._link = link

    async def close(self) -> None:
        """Finish what is under way and close all connections."""
        await self._link.close()


async def connect(url: str, *, now: Now = server_time) -> RedisEngine:
    """Open what a URL names. `now` is for tests that bring a clock of their own."""
    address = read_url(url)
    keys = Keys(address.prefix)
    server = await _look(address)
    features = replace(FEATURES, durability=server.durability)
    if server.in_cluster:
        return RedisEngine(
            Link(_cluster(address), _cluster(address), now), keys, features
        )
    kind, options = _kind(address)
    link = Link(Pipe(kind, options), Wires(kind, options), now)
    return RedisEngine(link, keys, features)


async def _look(address: Address) -> Server:
    kind, options = _kind(address)
    client = Redis.from_pool(ConnectionPool(connection_class=kind, **options))
    try:
        async with asyncio.timeout(10.0):
            return await look_at(client, address.where)
    except KNOWN as error:
        raise at_start(error, address.where) from error
    finally:
        await client.aclose()


def _kind(address: Address) -> tuple[type[Any], dict[str, Any]]:
    options = {**address.options, **_HABITS}
    if "path" in options:
        return UnixDomainSocketConnection, options
    options["socket_keepalive"] = True
    return SSLConnection if address.tls else Connection, options


def _cluster(address: Address) -> Cluster:
    options = {**address.options, **_HABITS, "socket_keepalive": True}
    options.pop("db")  # a cluster has only the one
    return Cluster(RedisCluster(ssl=address.tls, **options))
