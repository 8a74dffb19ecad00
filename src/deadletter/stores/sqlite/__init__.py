"""
Mailboxes, office and ledger in one SQLite file.

    sqlite:///relative.db     sqlite:////absolute/path.db
    ?synchronous=normal       faster; survives kill -9 but not a power cut
    ?shared=true              the file may have tables of an application
"""

import asyncio
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from deadletter.core.redact import sqlite_file
from deadletter.kit import UrlForm
from deadletter.ports.broker import AtomicBurial, AtomicReplay, Broker
from deadletter.ports.engine import AccessStore, ItemStore, Ledger
from deadletter.ports.features import Clock, Dice, Durability, Features
from deadletter.ports.letters import LetterStore
from deadletter.ports.transactions import TransactionalSending

from .access import SqliteAccess
from .atomic import SqliteAtomicBurial, SqliteAtomicReplay
from .connection import Synchronous
from .engine import Database
from .items import SqliteItems
from .ledger import SqliteLedger
from .letters import SqliteLetters
from .mailboxes import SqliteBroker
from .transactions import SqliteTransactions


class Options(Struct, frozen=True):
    """Parameters of an SQLite URL."""

    synchronous: Synchronous = "full"
    shared: bool = False


URL: Final = UrlForm("SQLite", {"sqlite": None}, Options, example="sqlite:///shop.db")

_DURABILITY: Final[dict[Synchronous, Durability]] = {
    "full": Durability.POWER_SAFE,
    "normal": Durability.KILL_SAFE,
}


class SqliteEngine:
    """Everything in one file. Any number of processes may open the same one."""

    any_loop: Literal[True] = True

    def __init__(self, db: Database, features: Features, dice: Dice) -> None:
        self.features = features
        self._mailboxes = SqliteBroker(db, features)
        self.broker: Broker = self._mailboxes
        self.letters: LetterStore | None = SqliteLetters(
            db, clock=db.clock, dice=dice, features=features
        )
        self.ledger: Ledger | None = SqliteLedger(db)
        self.access: AccessStore = SqliteAccess(db)
        self.atomic_burial: AtomicBurial | None = SqliteAtomicBurial(db, self._mailboxes)
        self.atomic_replay: AtomicReplay | None = SqliteAtomicReplay(db, self._mailboxes)
        self.transactions: TransactionalSending = SqliteTransactions(db)
        self._items = SqliteItems(db)
        self.items: ItemStore = self._items
        self.lock_problem = db.lock_problem
        self._db = db

    def lost(self) -> str | None:
        """Return why the file cannot be used any more; None while it is in place."""
        return self._db.lost()

    async def close(self) -> None:
        """Finish what is under way and let go of the file."""
        await asyncio.to_thread(self._mailboxes.stop)
        await asyncio.to_thread(self._items.stop)
        await self._db.close()


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> SqliteEngine:
    """Open the file of a URL; create and migrate it if need be."""
    path = Path(sqlite_file(url))
    given = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    options = URL.read_options("sqlite", dict(given))
    synchronous = options.synchronous
    db = Database(path, synchronous=synchronous, shared=options.shared, clock=clock)
    await db.open()
    features = Features(
        engine="sqlite",
        durability=_DURABILITY[synchronous],
        owns_fields=True,
        keeps_locks=db.lock_problem is None,
    )
    return SqliteEngine(db, features, dice)
