"""MongoDB for tests: a database that is empty each time, and time that is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from pymongo import AsyncMongoClient

from deadletter.ports import Clock
from deadletter.stores.mongodb.database import Database
from deadletter.stores.mongodb.engine import MongodbEngine, open_database
from deadletter.stores.mongodb.ledger import MongodbLedger, ServerTime
from deadletter.stores.mongodb.schema import Collections
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import FakeClock

_numbers = count(1)


async def opened(url: str, clock: Clock | None = None) -> MongodbEngine:
    """The engine of a URL, on the system's clock unless told otherwise."""
    return await open_database(url, clock=clock or SystemClock(), dice=SystemDice())


def within(url: str, database: str, **options: str) -> str:
    """The same server, another database in it; the user is kept where it was."""
    parts = urlsplit(url)
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return f"{parts.scheme}://{parts.netloc}/{database}?{parts.query}&authSource=admin{more}"


async def emptied(url: str) -> str:
    """The URL of a database with nothing in it; making indexes anew takes long."""
    url = within(url, "emptied")
    engine = await opened(url)
    for name in Collections.__struct_fields__:
        await getattr(database_of(engine).there, name).delete_many({})
    await engine.close()
    return url


@asynccontextmanager
async def a_database(url: str) -> AsyncIterator[str]:
    """The URL of a new database, gone afterwards."""
    name = f"test_{next(_numbers)}"
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    await client.drop_database(name)
    yield within(url, name)
    await client.drop_database(name)
    await client.close()


class ToldTime(ServerTime):
    """The clock of a test instead of the server's."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    @property
    def expression(self) -> Any:
        return self._clock.now()

    async def now(self, there: Collections) -> datetime:
        return self._clock.now()


async def on_clock(url: str, clock: FakeClock) -> MongodbEngine:
    """An engine whose ledger goes by this clock as well."""
    engine = await opened(url, clock)
    engine.ledger = MongodbLedger(database_of(engine), ToldTime(clock))
    return engine


def database_of(engine: MongodbEngine) -> Database:
    """What an engine works on."""
    return engine._db
