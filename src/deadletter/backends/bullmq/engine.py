"""The engine: opened, checked, closed."""

from msgspec.structs import replace

from deadletter.backends._redis.address import read_url
from deadletter.backends._redis.link import Link, Now, server_time
from deadletter.backends._redis.opening import linked, look
from deadletter.core.errors import ConfigError
from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.features import Features
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman

from .features import FEATURES
from .keys import Keys
from .mailboxes import BullBroker
from .registry import Registry
from .retention import Retention, read_retention


class BullEngine:
    """Queues of BullMQ on one server. It keeps neither letters nor a ledger."""

    def __init__(
        self, link: Link, keys: Keys, features: Features, retention: Retention
    ) -> None:
        self.features = features
        registry = Registry(link, keys)
        self.broker: Broker = BullBroker(link, registry, features, retention)
        self.letters: LetterStore | None = None
        self.ledger: Ledger | None = None
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        self._link = link

    async def close(self) -> None:
        """Finish what is under way and close all connections."""
        await self._link.close()


async def connect(url: str, *, now: Now = server_time) -> BullEngine:
    """Open what a URL names. `now` is for tests that bring a clock of their own."""
    url, retention = read_retention(url)
    address = read_url(url.replace("bullmq", "redis", 1), prefix="bull")
    keys = Keys(address.prefix)
    server = await look(address)
    if server.in_cluster:
        raise ConfigError(
            f"{address.where} is a node of a cluster: bullmq:// needs a server of its"
            " own, redis:// works there"
        )
    features = replace(FEATURES, durability=server.durability)
    return BullEngine(linked(address, now), keys, features, retention)
