"""Office and ledger in one database."""

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from deadletter.core.errors import ConfigError, no_office
from deadletter.ports.broker import (
    AtomicBurial,
    AtomicReplay,
    Broker,
    QueueInfo,
    QueueOptions,
    Sink,
    Source,
    Swept,
)
from deadletter.ports.engine import Ledger
from deadletter.ports.features import Clock, Dice, Durability, Features
from deadletter.ports.letters import LetterStore

from .address import ERRORS, HINT, Address, read_url
from .conventions import Conventions, settle_conventions
from .database import Client, Database, connect
from .groups import fill
from .ledger import MongodbLedger
from .letters import MongodbLetters
from .schema import is_there, prepare

# The best that MongoDB offers; a server may be less durable. It has no mailboxes.

FEATURES: Final = Features(
    engine="mongodb",
    durability=Durability.REPLICATED,  # where the set has more than one member
    ordered=False,  # this and the following concern mailboxes: there are none
    exact_delay=False,
    counts_attempts=False,
    counts_deaths=False,
    keeps_presence=False,
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


# Opening: create the collections, or explain why the server cannot be used.

_OLDEST: Final = 13  # the wire version of MongoDB 5.0, the first with snapshot reads


async def open_checked(
    address: Address, dice: Dice, *, make: bool = True
) -> tuple[Database, Features, Conventions]:
    """
    Connect, bring the collections up to date and return the server's features.

    Raises ConfigError with what to do if the server cannot be used. Without `make`,
    raises NotFound if there are no collections.
    """
    try:
        client = connect(address)
    except ERRORS.known as error:
        raise ERRORS.translate_opening(error, address.name) from error
    except ValueError as error:  # of the client library
        raise ConfigError(f"the MongoDB URL is invalid: {error}") from error
    try:
        database = Database(address, client, dice)
        features = features_of(await _hello(client, address))
        if not make:
            await _check_made(database, address)
        await prepare(database.there)
        await fill(database.there)
        conventions = await settle_conventions(database.there, address.ours)
    except BaseException as error:
        await client.close()
        if isinstance(error, ERRORS.known):
            raise ERRORS.translate_opening(error, address.name, HINT) from error
        raise
    return database, features, conventions


async def _check_made(database: Database, address: Address) -> None:
    if not await is_there(database.there):
        raise no_office(address.where)


async def _hello(client: Client, address: Address) -> dict[str, Any]:
    hello = await client.admin.command("hello")
    is_router = hello.get("msg") == "isdbgrid"
    if not is_router and "setName" not in hello:
        raise ConfigError(
            f"{address.name} is a standalone server, which has no transactions: make it a"
            " replica set, of one member if need be (mongod --replSet rs0, then"
            " rs.initiate() once)"
        )
    if hello["maxWireVersion"] < _OLDEST:
        raise ConfigError(f"{address.name} is too old: use 5.0 or newer")
    return hello


def features_of(hello: dict[str, Any]) -> Features:
    """Return the features of a server by its answer to `hello`."""
    # Every write waits for a majority, and for the journals. A sharded cluster does not
    # tell how many members that is.
    members = len(hello.get("hosts", [])) + len(hello.get("passives", []))
    durable = Durability.REPLICATED if members > 1 else Durability.POWER_SAFE
    return replace(FEATURES, durability=durable)


class NoMailboxes:
    """A broker without mailboxes; whatever needs one raises ConfigError."""

    def __init__(self, features: Features) -> None:
        self.features = features

    def source(self, mailbox: str) -> Source:
        """Raise ConfigError."""
        _refuse()

    def sink(self, mailbox: str) -> Sink:
        """Raise ConfigError."""
        _refuse()

    async def create(self, options: QueueOptions) -> None:
        """Raise ConfigError."""
        _refuse()

    async def update(self, options: QueueOptions) -> None:
        """Raise ConfigError."""
        _refuse()

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Raise ConfigError."""
        _refuse()

    async def queues(self) -> Sequence[QueueInfo]:
        """Return no queues."""
        return []

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Return None: there are no limits."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Raise ConfigError."""
        _refuse()


def _refuse() -> NoReturn:
    raise ConfigError(
        "mongodb keeps letters and keys, not messages: name it as the office, as in"
        ' App("redis://…", office="mongodb://…")'
    )


class MongodbEngine:
    """Office and ledger in one database, for any number of processes."""

    def __init__(
        self, db: Database, features: Features, clock: Clock, conventions: Conventions
    ) -> None:
        self.features = features
        self.broker: Broker = NoMailboxes(features)
        self.letters: LetterStore | None = MongodbLetters(
            db, clock=clock, features=features, review_order=conventions.review
        )
        self.ledger: Ledger | None = MongodbLedger(db, fields=conventions.keys)
        # Claims elsewhere and letters here are never one transaction.
        self.atomic_burial: AtomicBurial | None = None
        self.atomic_replay: AtomicReplay | None = None
        self._db = db

    async def close(self) -> None:
        """Finish the calls that are in progress and close all connections."""
        await self._db.close()


async def open_database(url: str, *, clock: Clock, dice: Dice, make: bool = True) -> MongodbEngine:
    """Open the database of a URL; create its collections unless they exist."""
    db, features, conventions = await open_checked(read_url(url), dice, make=make)
    return MongodbEngine(db, features, clock, conventions)
