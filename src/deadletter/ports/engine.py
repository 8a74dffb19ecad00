"""The engine: everything that a URL opens."""

from typing import Literal, Protocol, runtime_checkable

from .access import AccessStore
from .broker import Broker, Postman, Undertaker
from .features import Features
from .items import ItemStore
from .ledger import Ledger
from .letters import LetterStore


class Engine(Protocol):
    """An open engine: mailboxes, and an office and a ledger where the engine has them."""

    features: Features
    broker: Broker
    letters: LetterStore | None
    ledger: Ledger | None
    undertaker: Undertaker | None  # where mailboxes and office are one
    postman: Postman | None  # there, too

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""


@runtime_checkable
class LocksFile(Protocol):
    """An engine on a file that processes share by locking it."""

    lock_problem: str | None  # why other code in this process can drop its locks


@runtime_checkable
class AnyLoop(Protocol):
    """An engine that several event loops of one process can use, also at once."""

    any_loop: Literal[True]


@runtime_checkable
class Losable(Protocol):
    """An engine whose store can be taken away while it is in use, such as a file."""

    def lost(self) -> str | None:
        """Return why this process cannot use the store any more; None while it can."""


def loss_of(engine: Engine) -> str | None:
    """Return why this process cannot use an engine's store any more, if it cannot."""
    return engine.lost() if isinstance(engine, Losable) else None


@runtime_checkable
class Lends(Protocol):
    """An engine that keeps the items of the queue server as well."""

    items: ItemStore


@runtime_checkable
class Guards(Protocol):
    """An engine that keeps tokens and sessions as well."""

    access: AccessStore
