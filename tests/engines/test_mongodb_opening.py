"""MongoDB: collections made by whoever comes first, and sentences that help."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
)

from deadletter.core.errors import ConfigError, DeadLetterError, NotFound, Refused, Unavailable
from deadletter.kit import NoAnswer
from deadletter.ports import Durability, QueueOptions
from deadletter.stores import memory, mongodb
from deadletter.stores.mongodb.address import ERRORS, read_url
from deadletter.stores.mongodb.engine import MongodbEngine, features_of
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.letters_bench import ANNA, a_letter
from deadletter.wiring.engines import Paired, open_engine
from engines.mongodb_rig import a_database, database_of, opened
from servers import MongoDB, Server
from servers.fixtures import serve


class Standalone(MongoDB):
    """A server that belongs to no replica set: no transactions."""

    @classmethod
    def variable(cls) -> str:
        return "DLQ_TEST_MONGODB_STANDALONE_URL"

    def make_url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/"

    def command(self) -> list[str]:
        command = super().command()
        for option in ("--replSet", "--keyFile", "--oplogSize"):
            at = command.index(option)
            del command[at : at + 2]
        return command

    def is_ready(self) -> bool:
        try:
            with MongoClient[dict[str, object]](self.url, serverSelectionTimeoutMS=500) as client:
                return bool(client.admin.command("ping"))
        except PyMongoError:
            return False


@pytest.fixture
def standalone() -> Iterator[Server]:
    yield from serve(Standalone, [])


@pytest.fixture
async def url(mongodb_server: Server) -> AsyncIterator[str]:
    async with a_database(mongodb_server.url) as url:
        yield url


@pytest.fixture
async def engine(url: str) -> AsyncIterator[MongodbEngine]:
    engine = await opened(url)
    yield engine
    await engine.close()


async def test_ten_may_make_the_collections_at_once(url: str) -> None:
    engines = await asyncio.gather(*(opened(url) for _ in range(10)))

    for engine in engines:
        assert engine.letters is not None
        await engine.letters.keep([a_letter()])
    assert engines[0].letters is not None
    assert await engines[0].letters.counts() == {"orders": {"pending": 10}}
    assert await engines[0].letters.verify() == []
    for engine in engines:
        await engine.close()


async def test_looking_does_not_make_the_collections(url: str) -> None:
    with pytest.raises(NotFound, match=r"there is no office at [^ ]+ yet: `dlq work`"):
        await open_engine("memory://", office=url, make=False)

    engine = await opened(url)
    await engine.close()
    looking = await open_engine("memory://", office=url, make=False)
    await looking.close()


async def test_looking_leaves_the_database_empty(url: str) -> None:
    client: AsyncMongoClient[dict[str, object]] = AsyncMongoClient(url)

    with pytest.raises(NotFound):
        await open_engine(url, make=False)

    assert await client.get_default_database().list_collection_names() == []
    await client.close()


async def test_the_collections_have_the_names_people_look_for(engine: MongodbEngine) -> None:
    there = database_of(engine).there

    names = await there.letters.database.list_collection_names()

    assert {"dead_letter_events", "processed_events"} <= set(names)


async def test_offices_with_different_prefixes_do_not_meet(url: str) -> None:
    one = await opened(f"{url}&prefix=one_")
    two = await opened(f"{url}&prefix=two_")
    assert one.letters is not None
    assert two.letters is not None

    await one.letters.keep([a_letter()])

    assert await two.letters.counts() == {}
    names = await database_of(one).there.letters.database.list_collection_names()
    assert {"one_dead_letter_events", "two_dead_letter_events"} <= set(names)
    await one.close()
    await two.close()


async def test_features_state_the_durability_of_the_server(engine: MongodbEngine) -> None:
    three = features_of({"hosts": ["a", "b"], "passives": ["c"]})
    unknown = features_of({"msg": "isdbgrid"})

    assert engine.features.durability is Durability.POWER_SAFE
    assert three.durability is Durability.REPLICATED
    assert unknown.durability is Durability.POWER_SAFE


async def test_a_standalone_server_is_refused(standalone: Server) -> None:
    with pytest.raises(ConfigError, match=r"--replSet rs0, then rs\.initiate\(\)"):
        await opened(standalone.url)


async def test_collections_of_a_newer_version_are_left_alone(
    url: str, engine: MongodbEngine
) -> None:
    office = database_of(engine).there.office
    await office.update_one({"_id": "office"}, {"$set": {"version": 999}})

    with pytest.raises(ConfigError, match="upgrade deadletter"):
        await opened(url)


async def test_a_wrong_password_is_said_to_be_one(url: str) -> None:
    wrong = url.replace(f":{urlsplit(url).password}@", ":wrong@")
    assert wrong != url

    with pytest.raises(ConfigError, match="check user and password"):
        await opened(wrong)


async def test_a_user_of_another_database_is_told_where_to_log_in(url: str) -> None:
    with pytest.raises(ConfigError, match="authSource=admin"):
        await opened(url.replace("&authSource=admin", ""))


# The client library leaves the socket of an attempt that is broken off to the
# garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_that_is_not_there_may_come() -> None:
    nowhere = "mongodb://me:secret@127.0.0.1:1/?serverSelectionTimeoutMS=300"

    with pytest.raises(Unavailable, match="is MongoDB running") as caught:
        await opened(nowhere)

    assert "secret" not in str(caught.value)
    del caught
    gc.collect()


@pytest.mark.parametrize(
    ("error", "kind", "saying"),
    [
        (NotPrimaryError("x"), Unavailable, "read-only"),
        (AutoReconnect("x"), NoAnswer, "connection broke"),
        (OperationFailure("x", 112), Unavailable, "in the way"),
        (OperationFailure("x", 18), Unavailable, "check user and password"),
        (OperationFailure("x", 4242), Refused, "refuses this"),
        (BulkWriteError({"writeErrors": [{"code": 11000}]}), Unavailable, "faster"),
        (TimeoutError(), NoAnswer, "cannot be reached"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)[:20]),
)
def test_errors_are_told_in_our_words(
    error: Exception, kind: type[DeadLetterError], saying: str
) -> None:
    told = ERRORS.translate(error, "MongoDB at h/x")

    assert type(told) is kind
    assert saying in str(told)
    assert str(told).startswith("MongoDB at h/x: ")


async def test_reading_and_writing_is_all_a_user_needs(url: str) -> None:
    parts = urlsplit(url)
    database = parts.path[1:]
    admin: AsyncMongoClient[dict[str, object]] = AsyncMongoClient(url)
    name = f"clerk_{database}"
    rights = [{"role": "readWrite", "db": database}]
    await admin[database].command("createUser", name, pwd="pw", roles=rights)
    host = parts.netloc.rpartition("@")[2]
    theirs = f"mongodb://{name}:pw@{host}/{database}?replicaSet=rs0"

    clerk = await opened(theirs)
    assert clerk.letters is not None
    (kept,) = await clerk.letters.keep([a_letter()])
    assert await clerk.letters.note([kept.id], "mine", ANNA) == [kept.id]
    assert await clerk.letters.verify() == []
    with pytest.raises(ConfigError, match="grantRolesToUser"):
        await opened(f"mongodb://{name}:pw@{host}/elsewhere?replicaSet=rs0&authSource={database}")

    await clerk.close()
    await admin[database].command("dropUser", name)
    await admin.close()


@pytest.mark.parametrize(
    ("url", "saying"),
    [
        ("mongodb://", "write it like"),
        ("mongodb:///x", "write it like"),
        ("mongodb://h/a.b", "letters, digits"),
        ("mongodb://h/x?prefix=$a", "letters, digits"),
        ("mongodb://h/x?prefix=", "letters, digits"),
        ("mongodb://h:none/x", "cannot be"),
        ("mongodb://h/x?tls=maybe", "tls must be"),
        ("mongodb://h/x?pool=3", "Unknown option: pool"),
    ],
)
async def test_a_url_that_makes_no_sense_says_why(url: str, saying: str) -> None:
    with pytest.raises(ConfigError, match=saying):
        await opened(url)


def test_our_url_options_are_not_passed_to_the_client() -> None:
    address = read_url("mongodb://me:secret@a:1,b:2/shop?prefix=p_&replicaSet=rs0")
    plain = read_url("mongodb+srv://cluster.example.org")

    assert address.url == "mongodb://me:secret@a:1,b:2/shop?replicaSet=rs0"
    assert (address.where, address.database, address.prefix) == ("a:1, b:2/shop", "shop", "p_")
    assert (plain.url, plain.database) == ("mongodb+srv://cluster.example.org/", "deadletter")


async def test_using_mongodb_for_mailboxes_explains_what_to_do(engine: MongodbEngine) -> None:
    broker, options = engine.broker, QueueOptions(name="orders")

    assert await broker.queues() == []
    for call in (lambda: broker.source("orders"), lambda: broker.sink("orders")):
        with pytest.raises(ConfigError, match=r'office="mongodb://'):
            call()
    for asked in (
        broker.create(options),
        broker.update(options),
        broker.delete("orders"),
        broker.sweep(),
    ):
        with pytest.raises(ConfigError, match="not messages"):
            await asked


async def test_mongodb_can_be_the_office_of_another_engine(url: str) -> None:
    clock, dice = SystemClock(), SystemDice()
    office = await mongodb.open_engine(url, clock=clock, dice=dice)
    queue = await memory.open_engine("memory://", clock=clock, dice=dice)

    paired = Paired(queue, office)

    assert paired.letters is office.letters
    assert paired.atomic_burial is None
    await paired.close()


async def test_without_its_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(mongodb.__name__)]:
        if name != mongodb.__name__:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(mongodb, "engine", raising=False)
    monkeypatch.setitem(sys.modules, "pymongo", None)

    with pytest.raises(ConfigError, match=r"pip install 'deadletter\[mongodb\]'"):
        await mongodb.open_engine("mongodb://h/x", clock=SystemClock(), dice=SystemDice())


async def test_a_closed_engine_says_so(url: str) -> None:
    engine = await opened(url)
    await engine.close()
    await engine.close()

    assert engine.letters is not None
    with pytest.raises(DeadLetterError, match="closed"):
        await engine.letters.counts()


async def test_collections_that_were_dropped_are_missed(engine: MongodbEngine) -> None:
    await database_of(engine).there.office.drop()

    assert engine.letters is not None
    with pytest.raises(Unavailable, match="restart this process"):
        await engine.letters.keep([a_letter()])
