"""The engine: opened, checked, closed."""

from contextlib import suppress

from deadletter.amqp.address import read_url
from deadletter.core.errors import BackendError
from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman
from deadletter.ports.time import Clock

from .features import FEATURES
from .link import Link
from .mailboxes import RabbitBroker


class RabbitEngine:
    """Mailboxes on one broker. It keeps neither letters nor ledger."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self.features = FEATURES
        self._mailboxes = RabbitBroker(link, FEATURES, clock)
        self.broker: Broker = self._mailboxes
        self.letters: LetterStore | None = None
        self.ledger: Ledger | None = None
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        self._link = link

    async def close(self) -> None:
        """Give back what nobody has claimed, finish what was said, and go."""
        with suppress(BackendError):  # away: the broker takes it all back by itself
            await self._mailboxes.close()
        await self._link.close()


async def connect(url: str, *, clock: Clock) -> RabbitEngine:
    """Open what a URL names, once the broker has let us in."""
    link = Link(read_url(url))
    await link.start()
    return RabbitEngine(link, clock)
