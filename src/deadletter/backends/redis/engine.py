"""The engine: opened, checked, closed."""

from msgspec.structs import replace

from deadletter.backends._redis.address import read_url
from deadletter.backends._redis.link import Link, Now, server_time
from deadletter.backends._redis.opening import linked, linked_to_cluster, look
from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.features import Features
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman

from .features import FEATURES
from .keys import Keys
from .ledger import RedisLedger
from .mailboxes import RedisBroker
from .registry import Registry


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
    server = await look(address)
    features = replace(FEATURES, durability=server.durability)
    link = linked_to_cluster if server.in_cluster else linked
    return RedisEngine(link(address, now), keys, features)
