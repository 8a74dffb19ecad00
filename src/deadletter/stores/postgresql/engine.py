"""The engine: migrations, opening, and all stores in one database."""

from functools import partial
from importlib.resources import files
from typing import Final

from msgspec.structs import replace

from deadletter.core.errors import ConfigError, no_office
from deadletter.ports.broker import AtomicBurial, AtomicReplay, Broker
from deadletter.ports.engine import AccessStore, ItemStore, Ledger
from deadletter.ports.features import Clock, Durability, Features
from deadletter.ports.letters import LetterStore
from deadletter.ports.transactions import TransactionalSending

from .access import PostgresqlAccess
from .address import ERRORS, Address, read_url
from .atomic import PostgresqlAtomicBurial, PostgresqlAtomicReplay
from .database import Connection, Database, Waking, connect
from .items import PostgresqlItems
from .ledger import PostgresqlLedger
from .letters import PostgresqlLetters
from .mailboxes import PostgresqlBroker
from .transactions import PostgresqlTransactions

# Numbered migrations, applied by the first process that opens the database.

MIGRATIONS: Final = files(__package__) / "migrations"

# Held until the end of the transaction. The number is arbitrary, but ours alone.
_LOCK: Final = "SELECT pg_advisory_xact_lock(7163384699740971)"
# Read from the catalogue's own tables: names that a session has cached may be older than
# the lock that it has waited for.
_IS_THERE: Final = """
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables
    WHERE schemaname = 'deadletter' AND tablename = 'migrations')
"""
_VERSION: Final = "SELECT coalesce(max(number), 0) FROM deadletter.migrations"
# The user may lack the permission to create a schema that exists already.
_FIND: Final = """
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'deadletter')
"""
_PLACE: Final = "CREATE SCHEMA deadletter"
_BOOK: Final = """
CREATE TABLE IF NOT EXISTS deadletter.migrations (
    number     integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
_APPLIED: Final = "INSERT INTO deadletter.migrations (number) VALUES ($1)"


def known() -> list[tuple[int, str]]:
    """Return number and text of every migration, in order."""
    found = [
        (int(file.name.partition("_")[0]), file.read_text("utf-8"))
        for file in MIGRATIONS.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)


async def migrate(connection: Connection) -> int:
    """
    Apply missing migrations and return the version of the schema.

    Any number of processes may do this at once: one migrates, in one transaction. The
    others wait for it and find nothing left to do.
    """
    migrations = known()
    newest = migrations[-1][0]
    if await _version(connection) != newest:
        async with connection.transaction(isolation="read_committed"):
            await connection.execute(_LOCK)
            await _apply(connection, migrations, newest)
    return newest


async def is_there(connection: Connection) -> bool:
    """Return whether our tables exist."""
    return bool(await connection.fetchval(_IS_THERE))


async def _version(connection: Connection) -> int:
    if not await is_there(connection):
        return 0
    return int(await connection.fetchval(_VERSION))


async def _apply(connection: Connection, migrations: list[tuple[int, str]], newest: int) -> None:
    present = await _version(connection)
    if present > newest:
        raise ConfigError(
            f"the database was used by a newer deadletter (schema {present}, this one"
            f" knows {newest}): upgrade deadletter, or use another database"
        )
    if not await connection.fetchval(_FIND):
        await connection.execute(_PLACE)
    await connection.execute(_BOOK)
    for number, text in migrations:
        if number > present:
            await connection.execute(text)
            await connection.execute(_APPLIED, number)


# The best that PostgreSQL offers; a server may be less durable.

FEATURES: Final = Features(
    engine="postgresql",
    durability=Durability.POWER_SAFE,  # with fsync and synchronous_commit on
    owns_fields=True,
)


# Opening: create the tables, or explain why the database cannot be used.

_OLDEST: Final = 14
_SERVER: Final = """
SELECT current_setting('server_version_num')::int / 10000,
    current_setting('server_encoding'), current_setting('fsync') = 'on',
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names')
"""


async def prepare(address: Address, *, make: bool = True) -> Features:
    """
    Bring the tables up to date and return the server's features.

    Raises ConfigError with what to do if the database cannot be used. Without `make`,
    raises NotFound if there are no tables.
    """
    try:
        connection = await connect(address)
        try:
            version, encoding, *durable = await connection.fetchrow(_SERVER)
            _check(version, encoding, address)
            if not make and not await is_there(connection):
                raise no_office(address.where)
            await migrate(connection)
        finally:
            connection.terminate()
    except ERRORS.known as error:
        raise ERRORS.translate_opening(error, address.name) from error
    except ValueError as error:  # of the client library
        raise ConfigError(f"the PostgreSQL URL is invalid: {error}") from error
    return replace(FEATURES, durability=_durability(*durable))


def _check(version: int, encoding: str, address: Address) -> None:
    if version < _OLDEST:
        raise ConfigError(f"{address.name} has version {version}: use {_OLDEST} or newer")
    if encoding != "UTF8":
        raise ConfigError(
            f"{address.name} has the encoding {encoding}: use a database in UTF8"
            " (createdb --encoding=UTF8 --template=template0 NAME)"
        )


def _durability(fsync: bool, commit: str, standbys: str) -> Durability:
    if not fsync or commit == "off":
        return Durability.KILL_SAFE
    if standbys and commit != "local":
        return Durability.REPLICATED
    return Durability.POWER_SAFE


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
        self.access: AccessStore = PostgresqlAccess(self._db, clock)
        self.atomic_burial: AtomicBurial | None = PostgresqlAtomicBurial(self._db, broker, clock)
        self.atomic_replay: AtomicReplay | None = PostgresqlAtomicReplay(
            self._db, self._waking, clock
        )
        self.transactions: TransactionalSending = PostgresqlTransactions(self._db, broker)
        self._items = PostgresqlItems(self._db, self._waking)
        self.items: ItemStore = self._items

    async def close(self) -> None:
        """Finish the calls that are in progress and close all connections."""
        await self._items.stop()
        await self._waking.stop()
        await self._db.close()


async def open_database(url: str, clock: Clock, *, make: bool = True) -> PostgresqlEngine:
    """Open the database of a URL; create and migrate its tables if need be."""
    address = read_url(url)
    return PostgresqlEngine(address, await prepare(address, make=make), clock)
