"""PostgreSQL: tables made by whoever comes first, and sentences that help."""

import asyncio
import sys
from collections.abc import AsyncIterator
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from deadletter.core.errors import ConfigError, DeadLetterError, NotFound, Unavailable
from deadletter.ports import Durability
from deadletter.stores import postgresql
from deadletter.stores.postgresql.address import read_url
from deadletter.stores.postgresql.engine import known, open_database, prepare
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.queue_bench import a_message
from deadletter.wiring.engines import open_engine
from engines.postgresql_time import a_database, within
from servers import Server

# A campaign of 250 letters, of which one has gone.
_OF_VERSION_8 = """
CREATE TABLE deadletter.migrations (
    number integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());
INSERT INTO deadletter.migrations SELECT generate_series(1, 8);
INSERT INTO deadletter.campaigns
    (id, query, created_at, actor, reason, state, cap, items, taken)
VALUES ('c-1', 'is:pending', now(), 'anna', '', 'running', 5, 250, 1);
INSERT INTO deadletter.campaign_items (campaign, ordinal, letter)
SELECT 1, n, n + 1 FROM generate_series(0, 249) AS n;
UPDATE deadletter.campaign_items SET outcome = 'sent', generation = 1
WHERE ordinal = 0;
"""


@pytest.fixture
async def url(postgresql_server: Server) -> AsyncIterator[str]:
    async with a_database(postgresql_server.url) as url:
        yield url


async def test_ten_may_make_the_tables_at_once(url: str) -> None:
    features = await asyncio.gather(*(prepare(read_url(url)) for _ in range(10)))

    connection = await asyncpg.connect(url)
    numbers = await connection.fetch("SELECT number FROM deadletter.migrations")
    await connection.close()
    assert sorted(row[0] for row in numbers) == [number for number, _ in known()]
    assert {one.engine for one in features} == {"postgresql"}


async def test_looking_does_not_make_the_tables(url: str) -> None:
    with pytest.raises(NotFound, match=r"there is no office at [^ ]+ yet: `dlq work`"):
        await open_engine(url, make=False)

    connection = await asyncpg.connect(url)
    found = await connection.fetchval(
        "SELECT count(*) FROM pg_namespace WHERE nspname = 'deadletter'"
    )
    await connection.close()
    assert found == 0
    await (await open_engine(url)).close()
    await (await open_engine(url, make=False)).close()


async def test_features_state_the_durability_of_the_server(url: str) -> None:
    safe = await prepare(read_url(url))
    hasty = await prepare(read_url(f"{url}?synchronous_commit=off"))

    assert safe.durability is Durability.POWER_SAFE
    assert hasty.durability is Durability.KILL_SAFE


async def test_a_hasty_office_is_refused_unless_accepted(url: str) -> None:
    hasty = f"{url}?synchronous_commit=off"

    with pytest.raises(ConfigError, match="the office in postgresql is kill-safe only"):
        await open_engine(hasty)
    engine = await open_engine(hasty, office_durability="kill-safe")
    await engine.close()


async def test_tables_of_a_newer_version_are_left_alone(url: str) -> None:
    await prepare(read_url(url))
    connection = await asyncpg.connect(url)
    await connection.execute("INSERT INTO deadletter.migrations VALUES (999)")
    await connection.close()

    with pytest.raises(ConfigError, match="upgrade deadletter"):
        await prepare(read_url(url))


async def test_plans_of_an_older_version_are_gone_on_with(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE SCHEMA deadletter")
    for number, text in known():
        if number <= 8:
            await connection.execute(text)
    await connection.execute(_OF_VERSION_8)

    await prepare(read_url(url))

    rows = await connection.fetch(
        "SELECT campaign, first, until, letters, reach @> 7::bigint AS has"
        " FROM deadletter.campaign_plans ORDER BY campaign, until"
    )
    assert [tuple(row) for row in rows] == [
        (1, 1, 200, list(range(2, 201)), True),
        (1, 200, 250, list(range(201, 251)), False),
    ]
    items = await connection.fetch("SELECT ordinal, letter, outcome FROM deadletter.campaign_items")
    assert [tuple(row) for row in items] == [(0, 1, "sent")]
    await connection.close()


async def test_a_wrong_password_is_said_to_be_one(url: str) -> None:
    parts = urlsplit(url)
    wrong = url.replace(f":{parts.password}@", ":wrong@")
    assert wrong != url

    with pytest.raises(ConfigError, match="check user and password"):
        await prepare(read_url(wrong))


async def test_a_missing_database_is_said_to_be_missing(postgresql_server: Server) -> None:
    with pytest.raises(ConfigError, match="createdb"):
        await prepare(read_url(within(postgresql_server.url, "nowhere")))


async def test_a_server_that_is_not_there_may_come(postgresql_server: Server) -> None:
    with pytest.raises(Unavailable, match="is PostgreSQL running"):
        await prepare(read_url("postgresql://postgres@127.0.0.1:1/postgres"))


async def test_a_missing_permission_to_create_tables_says_what_to_grant(url: str) -> None:
    parts = urlsplit(url)
    connection = await asyncpg.connect(url)
    role = f"guest_{parts.path[1:]}"
    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'guest'")
    guest = f"postgresql://{role}:guest@{parts.hostname}:{parts.port}{parts.path}"

    with pytest.raises(ConfigError, match="CREATE SCHEMA deadletter AUTHORIZATION"):
        await prepare(read_url(guest))

    await connection.execute(f"CREATE SCHEMA deadletter AUTHORIZATION {role}")
    assert (await prepare(read_url(guest))).engine == "postgresql"
    await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    await connection.close()


async def test_a_parameter_that_is_none_is_said_to_be_in_the_url(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown parameter 'poool' in the PostgreSQL URL \(did you mean 'pool'"
    ):
        await prepare(read_url(f"{url}?poool=4"))


async def test_a_database_that_is_not_unicode_is_refused(postgresql_server: Server) -> None:
    admin = await asyncpg.connect(postgresql_server.url)
    await admin.execute("CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(ConfigError, match="use a database in UTF8"):
            await prepare(read_url(within(postgresql_server.url, "narrow")))
    finally:
        await admin.execute("DROP DATABASE narrow WITH (FORCE)")
        await admin.close()


@pytest.mark.parametrize(
    ("query", "saying"),
    [
        ("pool=0", "from 1 to"),
        ("pool=many", "from 1 to"),
        ("pgbouncer=maybe", "true or false"),
        ("listen=there", "past pgbouncer"),
        ("sslmode=odd", "sslmode"),
    ],
)
async def test_a_url_that_makes_no_sense_says_why(query: str, saying: str) -> None:
    url = f"postgresql://postgres@127.0.0.1:1/postgres?{query}"

    with pytest.raises(ConfigError, match=saying):
        await open_database(url, SystemClock())


def test_listening_goes_past_pgbouncer() -> None:
    past = "postgresql://direct:5432/x"

    plain = read_url("postgresql://h/x")
    bounced = read_url("postgresql://h/x?pgbouncer=1")
    both = read_url(f"postgresql://h/x?pgbouncer=1&listen={quote(past, safe='')}")

    assert (plain.listen, bounced.listen, both.listen) == (plain.dsn, None, past)


def test_no_password_is_ever_shown() -> None:
    address = read_url("postgresql://me:secret@h:99/x")

    assert address.where == "h:99/x"


async def test_without_its_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(postgresql.__name__)]:
        if name != postgresql.__name__:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(postgresql, "engine", raising=False)
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(ConfigError, match=r"pip install 'deadletter\[postgresql\]'"):
        await postgresql.open_engine("postgresql://h/x", clock=SystemClock(), dice=SystemDice())


async def test_a_closed_engine_says_so(url: str) -> None:
    engine = await open_database(url, SystemClock())
    await engine.close()
    await engine.close()

    with pytest.raises(DeadLetterError, match="closed"):
        await engine.broker.sink("orders").send([a_message()])
