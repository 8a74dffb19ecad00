"""The engine: opened, checked, closed."""

from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from msgspec.structs import replace

from deadletter.core.errors import ConfigError, Refused
from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.features import Durability, Features
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman
from deadletter.ports.time import Clock, Dice

from .address import Address, read_url
from .attic import open_attic
from .errors import KNOWN, at_start
from .features import FEATURES
from .link import Link
from .mailboxes import SqsBroker
from .names import Names
from .post import Post
from .registry import Registry

_CALLS: Final = 50  # at once; more wait for a connection
_WAITS: Final = 500
_PATIENCE: Final = 10.0  # seconds for an answer
_LONGEST_POLL: Final = 20.0


class SqsEngine:
    """Mailboxes on SQS. It keeps neither letters nor a ledger."""

    def __init__(
        self, broker: SqsBroker, features: Features, link: Link, stack: AsyncExitStack
    ) -> None:
        self.features = features
        self.broker: Broker = broker
        self.letters: LetterStore | None = None
        self.ledger: Ledger | None = None
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        self.link = link
        self._mailboxes = broker
        self._stack = stack

    async def close(self) -> None:
        """Put back what cancelled receives may have claimed; close connections."""
        await self._mailboxes.close()
        await self._stack.aclose()


async def connect(url: str, *, clock: Clock, dice: Dice) -> SqsEngine:
    """Open what a URL names."""
    address = read_url(url)
    async with AsyncExitStack() as stack:
        link, attic = await _opened(address, stack)
        durable = Durability.REPLICATED if address.is_amazon else Durability.NONE
        features = replace(FEATURES, durability=durable)
        registry = Registry(link, Names(address.prefix), clock)
        post = Post(link, attic, clock=clock, dice=dice)
        broker = SqsBroker(link, registry, post, features, clock)
        return SqsEngine(broker, features, link, stack.pop_all())


async def _opened(address: Address, stack: AsyncExitStack) -> tuple[Link, Any]:
    make = partial(_client, get_session(), address)
    try:
        calling = await stack.enter_async_context(make("sqs", _CALLS, _PATIENCE))
        patience = _PATIENCE + _LONGEST_POLL
        waiting = await stack.enter_async_context(make("sqs", _WAITS, patience))
        attic = None
        if address.claim_check:
            make_s3 = partial(make, "s3", _CALLS, 6 * _PATIENCE)
            attic = await open_attic(address.claim_check, make_s3, stack)
        await calling.list_queues(QueueNamePrefix=address.prefix or "dlq", MaxResults=1)
    except KNOWN as error:
        ours = at_start(error, address.where)
        if not isinstance(ours, Refused):  # not everybody may list queues
            raise ours from error
    return Link(calling, waiting), attic


def _client(
    session: Any, address: Address, service: str, connections: int, patience: float
) -> Any:
    keys = address.keys or (None, None)
    try:
        return session.create_client(
            service,
            region_name=address.region,
            endpoint_url=address.endpoint,
            aws_access_key_id=keys[0],
            aws_secret_access_key=keys[1],
            config=AioConfig(
                max_pool_connections=connections,
                connect_timeout=_PATIENCE,
                read_timeout=patience,
                # Whoever calls repeats: he knows how to tell it from a first try.
                retries={"total_max_attempts": 1},
                tcp_keepalive=True,
            ),
        )
    except ValueError as error:  # what the library says of a bad endpoint
        raise ConfigError(f"the SQS URL cannot be used: {error}") from error
