"""What a URL opens."""

from typing import Protocol

from .broker import Broker
from .burial import Undertaker
from .features import Features
from .ledger import Ledger
from .letters import LetterStore
from .postman import Postman


class Engine(Protocol):
    """What a URL opens: mailboxes, and an office and a ledger where it can."""

    features: Features
    broker: Broker
    letters: LetterStore | None
    ledger: Ledger | None
    undertaker: Undertaker | None  # where mailboxes and office are one
    postman: Postman | None  # there, too

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""
