"""Office and ledger in one database."""

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from deadletter.core.errors import ConfigError, no_office
from deadletter.ports.broker import (
    Broker,
    Postman,
    QueueInfo,
    QueueOptions,
    Sink,
    Source,
    Swept,
    Undertaker,
)
from deadletter.ports.engine import Ledger
from deadletter.ports.features import Clock, Dice, Durability, Features
from deadletter.ports.letters import LetterStore

from .address import TROUBLE, Address, explained, read_url
from .database import Client, Database, connect
from .groups import fill
from .ledger import MongodbLedger
from .letters import MongodbLetters
from .schema import is_there, prepare

# What MongoDB promises; an opened one may be less durable. It has no mailboxes.

FEATURES: Final = Features(
    engine="mongodb",
    durability=Durability.REPLICATED,  # where the set has more than one member
    ordered=False,  # this and what follows is about mailboxes: there are none
    exact_delay=False,
    counts_attempts=False,
    keeps_history=False,
    fences=False,
    finds_suspects=False,
    sees_lost=False,
    sees_delayed=False,
    due_order=False,
    dooms=False,
    tallies=False,
    keeps_options=False,
)


# Making the collections, or saying in one sentence why the server cannot be used.

_OLDEST: Final = 13  # the wire version of MongoDB 5.0, the first with snapshot reads


async def open_checked(
    address: Address, dice: Dice, *, make: bool = True
) -> tuple[Database, Features]:
    """
    Connect, bring the collections up to date and say what the server promises.

    Raises ConfigError with what to do when that cannot be. Without `make`,
    collections that are missing altogether are NotFound.
    """
    try:
        client = connect(address)
    except TROUBLE as error:
        raise explained(error, address.shown) from error
    except ValueError as error:  # the client library's own reading of the URL
        raise ConfigError(f"the MongoDB URL cannot be read: {error}") from error
    try:
        database = Database(address, client, dice)
        features = features_of(await _hello(client, address))
        if not make:
            await _check_made(database, address)
        await prepare(database.there)
        await fill(database.there)
    except BaseException as error:
        await client.close()
        if isinstance(error, TROUBLE):
            raise explained(error, address.shown) from error
        raise
    return database, features


async def _check_made(database: Database, address: Address) -> None:
    if not await is_there(database.there):
        raise no_office(address.shown)


async def _hello(client: Client, address: Address) -> dict[str, Any]:
    hello = await client.admin.command("hello")
    is_router = hello.get("msg") == "isdbgrid"
    if not is_router and "setName" not in hello:
        raise ConfigError(
            f"MongoDB at {address.shown} is a standalone server, which has no"
            " transactions, and without them a letter could be kept and not counted,"
            " or moved and not audited: make it a replica set, of one member if need"
            " be (mongod --replSet rs0, then rs.initiate() once)"
        )
    if hello["maxWireVersion"] < _OLDEST:
        raise ConfigError(f"MongoDB at {address.shown} is too old: use 5.0 or newer")
    return hello


def features_of(hello: dict[str, Any]) -> Features:
    """What a server promises, by what it says of itself."""
    # Every write waits for a majority, and for the journals. Of a sharded cluster
    # nobody tells us how many that is.
    members = len(hello.get("hosts", [])) + len(hello.get("passives", []))
    durable = Durability.REPLICATED if members > 1 else Durability.POWER_SAFE
    return replace(FEATURES, durability=durable)


# No mailboxes: this engine keeps letters and keys, and says so when asked for more.


class NoMailboxes:
    """A broker without mailboxes."""

    def __init__(self, features: Features) -> None:
        self.features = features

    def source(self, mailbox: str) -> Source:
        """There is none."""
        _refuse()

    def sink(self, mailbox: str) -> Sink:
        """There is none."""
        _refuse()

    async def create(self, options: QueueOptions) -> None:
        """It cannot be made."""
        _refuse()

    async def update(self, options: QueueOptions) -> None:
        """There is none to change."""
        _refuse()

    async def delete(self, name: str, *, force: bool = False) -> int:
        """There is none to delete."""
        _refuse()

    async def queues(self) -> Sequence[QueueInfo]:
        """None, so that whoever only wants to know is told."""
        return []

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """None: mailboxes here have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Nobody can have lost anything here."""
        _refuse()


def _refuse() -> NoReturn:
    raise ConfigError(
        "mongodb keeps letters and keys, not messages: name it as the office, as in"
        ' App("redis://…", office="mongodb://…")'
    )


class MongodbEngine:
    """Office and ledger in one database, for any number of processes."""

    def __init__(self, db: Database, features: Features, clock: Clock) -> None:
        self.features = features
        self.broker: Broker = NoMailboxes(features)
        self.letters: LetterStore | None = MongodbLetters(db, clock=clock, features=features)
        self.ledger: Ledger | None = MongodbLedger(db)
        # Claims elsewhere and letters here cannot be one transaction.
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        self._db = db

    async def close(self) -> None:
        """Finish what is under way and let go of all connections."""
        await self._db.close()


async def open_database(url: str, *, clock: Clock, dice: Dice, make: bool = True) -> MongodbEngine:
    """Open the database a URL names, its collections made if need be."""
    db, features = await open_checked(read_url(url), dice, make=make)
    return MongodbEngine(db, features, clock)
