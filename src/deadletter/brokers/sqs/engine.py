"""The engine on Amazon SQS."""

from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from aiobotocore.session import get_session  # type: ignore[import-untyped]
from msgspec.structs import replace

from deadletter.ports.broker import Broker, Postman, Undertaker
from deadletter.ports.engine import Ledger
from deadletter.ports.features import Clock, Dice, Durability, Features
from deadletter.ports.letters import LetterStore

from .body_store import open_body_store
from .connection import ERRORS, Address, Options, SqsService, address_of, check, client, url_form
from .mailboxes import SqsBroker
from .message_format import QueueNames
from .registry import QueueRegistry
from .sender import Sender

FEATURES: Final = Features(
    engine="sqs",
    durability=Durability.REPLICATED,  # as Amazon says; an emulator keeps nothing
    ordered=False,  # FIFO queues are
    exact_delay=False,
    fences=False,
    due_order=False,
    dooms=False,
    tallies=False,
    keeps_letters=False,
    keeps_ledger=False,
)


_CALLS: Final = 50  # at once; more wait for a connection
_WAITS: Final = 500
URL: Final = url_form(Options)
_PATIENCE: Final = 10.0  # seconds for an answer
_LONGEST_POLL: Final = 20.0


class SqsEngine:
    """Mailboxes on SQS, without letters and ledger."""

    def __init__(
        self, broker: SqsBroker, features: Features, service: SqsService, stack: AsyncExitStack
    ) -> None:
        self.features = features
        self.broker: Broker = broker
        self.letters: LetterStore | None = None
        self.ledger: Ledger | None = None
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        self.service = service
        self._mailboxes = broker
        self._stack = stack

    async def close(self) -> None:
        """Release the claims of cancelled receives; close connections."""
        await self._mailboxes.close()
        await self._stack.aclose()


async def connect(url: str, *, clock: Clock, dice: Dice) -> SqsEngine:
    """Open the engine of a URL."""
    said = URL.read(url)
    address, options = address_of(said), said.options
    async with AsyncExitStack() as stack:
        service, body_store = await _opened(address, options, stack)
        durable = Durability.REPLICATED if address.is_amazon else Durability.NONE
        features = replace(FEATURES, durability=durable)
        registry = QueueRegistry(service, QueueNames(options.prefix), clock)
        sender = Sender(service, body_store, clock=clock, dice=dice)
        broker = SqsBroker(service, registry, sender, features, clock)
        return SqsEngine(broker, features, service, stack.pop_all())


async def _opened(
    address: Address, options: Options, stack: AsyncExitStack
) -> tuple[SqsService, Any]:
    make = partial(client, get_session(), address)
    try:
        calling = await stack.enter_async_context(make(connections=_CALLS, patience=_PATIENCE))
        patience = _PATIENCE + _LONGEST_POLL
        waiting = await stack.enter_async_context(make(connections=_WAITS, patience=patience))
        body_store = None
        if options.claim_check:
            make_s3 = partial(make, "s3", connections=_CALLS, patience=6 * _PATIENCE)
            body_store = await open_body_store(options.claim_check, make_s3, stack)
    except ERRORS.known as error:
        raise ERRORS.translate_opening(error, address.where) from error
    await check(calling, address, options.prefix)
    return SqsService(calling, waiting), body_store
