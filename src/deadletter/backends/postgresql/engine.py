"""Everything in one database."""

from functools import partial

from deadletter.ports.access import AccessStore
from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.features import Features
from deadletter.ports.items import ItemStore
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman
from deadletter.ports.time import Clock

from .access import PostgresqlAccess
from .address import Address, read_url
from .database import Database
from .items import PostgresqlItems
from .ledger import PostgresqlLedger
from .letters import PostgresqlLetters
from .mailboxes import PostgresqlBroker
from .opening import prepare
from .pool import connect
from .postman import PostgresqlPostman
from .undertaker import PostgresqlUndertaker
from .waking import Waking


class PostgresqlEngine:
    """Mailboxes, office and ledger in one database, for any number of processes."""

    def __init__(self, address: Address, features: Features, clock: Clock) -> None:
        self.features = features
        self._db = Database(address)
        listen = partial(connect, address, address.listen) if address.listen else None
        self._waking = Waking(listen)
        broker = PostgresqlBroker(self._db, features, self._waking)
        self.broker: Broker = broker
        self.letters: LetterStore | None = PostgresqlLetters(
            self._db, clock=clock, features=features
        )
        self.ledger: Ledger | None = PostgresqlLedger(self._db)
        self.access: AccessStore = PostgresqlAccess(self._db, clock=clock)
        self.undertaker: Undertaker | None = PostgresqlUndertaker(
            self._db, broker, clock
        )
        self.postman: Postman | None = PostgresqlPostman(self._db, self._waking, clock)
        self._items = PostgresqlItems(self._db, self._waking)
        self.items: ItemStore = self._items

    async def close(self) -> None:
        """Finish what is under way and let go of all connections."""
        await self._items.stop()
        await self._waking.stop()
        await self._db.close()


async def open_database(url: str, clock: Clock) -> PostgresqlEngine:
    """Open the database a URL names, its tables made and migrated if need be."""
    address = read_url(url)
    return PostgresqlEngine(address, await prepare(address), clock)
