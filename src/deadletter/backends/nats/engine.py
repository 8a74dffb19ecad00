"""The engine: opened, checked, closed."""

from msgspec.structs import replace

from deadletter.core.errors import ConfigError
from deadletter.nats_login import at_start, knock
from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.features import Durability
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman
from deadletter.ports.time import Clock

from .address import Address, read_url
from .advisories import Advisories
from .errors import KNOWN, NO_JETSTREAM, Declined, Unheard
from .features import FEATURES
from .link import Link
from .mailboxes import NatsBroker
from .names import Names
from .registry import Registry


class NatsEngine:
    """Mailboxes on a server; no office and no ledger."""

    def __init__(
        self, link: Link, address: Address, registry: Registry, *, clock: Clock
    ) -> None:
        names = _names(address)
        # How often the server syncs is its own affair, and by default it is seldom.
        durability = Durability.KILL_SAFE
        if address.replicas > 1:
            durability = Durability.REPLICATED
        self.features = replace(FEATURES, durability=durability)
        self._link = link
        self._broker = NatsBroker(
            link,
            names,
            registry,
            self.features,
            clock=clock,
            replicas=address.replicas,
        )
        self.broker: Broker = self._broker
        self.letters: LetterStore | None = None
        self.ledger: Ledger | None = None
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        self.advisories = Advisories(link, names, replicas=address.replicas)

    async def close(self) -> None:
        """Finish what is under way, give back what waits here, and disconnect."""
        await self._broker.close()
        await self._link.close()


async def connect(url: str, *, clock: Clock, second: float = 1.0) -> NatsEngine:
    """Open what a URL names; `second` is how long a second of a lease lasts."""
    address = read_url(url)
    link = Link(address.login, second=second)
    try:
        await knock(address.login, error_cb=link.error)
        await link.begin()
    except KNOWN as failure:
        raise at_start(failure, address.login) from failure
    try:
        return await _opened(link, address, clock)
    except BaseException:
        await link.close()
        raise


async def _opened(link: Link, address: Address, clock: Clock) -> NatsEngine:
    names = _names(address)
    registry = Registry(link, names, replicas=address.replicas, clock=clock)
    try:
        await registry.make_book()
    except Unheard as error:
        raise ConfigError(
            f"{address.login.where} has no JetStream: start the server with -js, or"
            " enable it for our account"
        ) from error
    except Declined as error:
        if error.code in NO_JETSTREAM:
            raise ConfigError(str(error)) from error
        raise
    return NatsEngine(link, address, registry, clock=clock)


def _names(address: Address) -> Names:
    return Names(address.prefix, address.stream, address.consumer)
