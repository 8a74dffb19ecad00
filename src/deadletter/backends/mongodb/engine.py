"""Office and ledger in one database."""

from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.features import Features
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman
from deadletter.ports.time import Clock, Dice

from .address import read_url
from .database import Database
from .ledger import MongodbLedger
from .letters import MongodbLetters
from .mailboxes import NoMailboxes
from .opening import open_checked


class MongodbEngine:
    """Office and ledger in one database, for any number of processes."""

    def __init__(self, db: Database, features: Features, clock: Clock) -> None:
        self.features = features
        self.broker: Broker = NoMailboxes(features)
        self.letters: LetterStore | None = MongodbLetters(
            db, clock=clock, features=features
        )
        self.ledger: Ledger | None = MongodbLedger(db)
        # Claims elsewhere and letters here cannot be one transaction.
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        self._db = db

    async def close(self) -> None:
        """Finish what is under way and let go of all connections."""
        await self._db.close()


async def open_database(url: str, *, clock: Clock, dice: Dice) -> MongodbEngine:
    """Open the database a URL names, its collections made if need be."""
    db, features = await open_checked(read_url(url), dice)
    return MongodbEngine(db, features, clock)
