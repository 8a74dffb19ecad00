"""
Mailboxes, office and ledger in memory.

    memory://     gone with the process; for tests, demos and trying things out
"""

from typing import Literal

from deadletter.core.errors import ConfigError
from deadletter.ports.access import AccessStore
from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.features import Durability, Features
from deadletter.ports.items import ItemStore
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman
from deadletter.ports.time import Clock, Dice

from .access import MemoryAccess
from .items import MemoryItems
from .ledger import MemoryLedger
from .letters import MemoryLetters
from .postman import MemoryPostman
from .queue import MemoryBroker
from .undertaker import MemoryUndertaker


class MemoryEngine:
    """Everything in memory, for one process."""

    any_loop: Literal[True] = True

    def __init__(self, *, clock: Clock, dice: Dice) -> None:
        self.features = Features(
            engine="memory",
            durability=Durability.NONE,
            shared=False,
            owns_fields=True,
        )
        broker = MemoryBroker(self.features, clock=clock)
        letters = MemoryLetters(clock=clock, dice=dice)
        self.broker: Broker = broker
        self.letters: LetterStore | None = letters
        self.undertaker: Undertaker | None = MemoryUndertaker(broker, letters)
        self.postman: Postman | None = MemoryPostman(broker, letters)
        self.ledger: Ledger | None = MemoryLedger(clock=clock)
        self.access: AccessStore = MemoryAccess(clock=clock)
        self.items: ItemStore = MemoryItems(clock=clock, dice=dice)

    async def close(self) -> None:
        """Nothing is kept, so there is nothing to finish."""


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> MemoryEngine:
    """A new engine in memory; each call opens another one."""
    if url not in {"memory:", "memory://", "memory:///"}:
        raise ConfigError(
            f"{url!a}: nothing follows memory://, each opening is a new one"
        )
    return MemoryEngine(clock=clock, dice=dice)
