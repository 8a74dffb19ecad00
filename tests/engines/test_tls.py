"""Every engine over TLS, with a private authority and a certificate of our own."""

import asyncio
import gc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from deadletter import App, DLQPolicy
from deadletter.brokers.kafka.errors import from_code
from deadletter.core.errors import ConfigError, DeadLetterError, NotFound, Unavailable
from deadletter.testing.fakes import eventually
from deadletter.wiring.engines import opened
from deadletter.wiring.foreign import opened_foreign
from servers import Server
from servers.fixtures import serve
from servers.secure import (
    Secure,
    SecureKafka,
    SecureMongoDB,
    SecureNats,
    SecurePostgreSQL,
    SecureRabbitMQ,
    SecureRedis,
)

DRAINED = [SecureRedis, SecureNats, SecureRabbitMQ, SecureKafka]
KINDS = [SecurePostgreSQL, SecureMongoDB, *DRAINED]
# What a URL that knows nothing of TLS should be changed to.
WITH_TLS = {
    "postgresql": "sslmode=verify-full",
    "redis": "rediss://",
    "nats": "tls://",
    "mongodb": "tls=true",
    "rabbitmq": "amqps://",
    "kafka": "security.protocol",
}


def each(kinds: Sequence[type[Secure]]) -> list[Any]:
    return [
        pytest.param(kind, id=kind.name, marks=pytest.mark.xdist_group(f"{kind.name}_server"))
        for kind in kinds
    ]


@pytest.fixture(scope="module", params=each(KINDS))
def server(request: pytest.FixtureRequest, started_servers: list[Server]) -> Iterator[Secure]:
    for server in serve(request.param, started_servers):
        yield cast("Secure", server)


@pytest.fixture(autouse=True)
def what_the_libraries_leave_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """MongoDB's forgets the socket of a handshake that failed."""
    yield
    if "mongodb" in request.node.name:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


async def test_messages_and_letters_go_over_it(server: Secure, tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/other.db"
    url, office = server.url, None if server.name == "postgresql" else file
    if server.name == "mongodb":
        url, office = file, server.url
    done = []
    async with App(url, office=office) as app:

        @app.handler("secure-orders", policy=DLQPolicy(max_attempts=1))
        async def work(order: dict[str, int]) -> None:
            if order["id"] == 2:
                raise ValueError("no")
            done.append(order["id"])

        await app.send("secure-orders", {"id": 1})
        await app.send("secure-orders", {"id": 2})
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        letters = await app.letters()

        async def buried() -> bool:
            counts = await letters.counts()
            return sum(counts.get("secure-orders", {}).values()) == 1

        await eventually(lambda: done == [1], within=30)
        await eventually(buried, within=30)
        stop.set()
        assert await working == 0


async def test_an_authority_that_we_do_not_know_is_told(server: Secure) -> None:
    with pytest.raises(ConfigError, match="TLS handshake") as caught:
        await _open(server.strange)

    assert server.names[0] in str(caught.value)


async def test_that_it_wants_to_see_a_certificate_is_told(server: Secure) -> None:
    with pytest.raises(DeadLetterError) as caught:
        await _open(server.bare)

    assert server.names[1] in str(caught.value)


async def test_that_it_wants_tls_is_told(server: Secure) -> None:
    with pytest.raises(DeadLetterError) as caught:
        await _open(server.plain)

    assert WITH_TLS[server.name] in str(caught.value)


@pytest.mark.parametrize("server", each(DRAINED), indirect=True)
async def test_the_dead_letters_of_others_are_drained_over_it(server: Secure) -> None:
    async with opened_foreign(server.url) as foreign:
        with suppress(NotFound):  # RabbitMQ does not list its queues
            assert list(await foreign.places()) == []
    with pytest.raises(DeadLetterError, match=r"TLS|[Ss]ecurity|certificate"):
        async with opened_foreign(server.strange):
            pass


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgresql://localhost?sslmode=verify-full&sslrootcert=", "sslrootcert"),
        ("postgresql://localhost?sslkey=", "sslkey"),
        ("rediss://localhost?ssl_ca_certs=", "ssl_ca_certs"),
        ("bullmqs://localhost?ssl_certfile=", "ssl_certfile"),
        ("mongodb://localhost?tls=true&tlsCAFile=", "tlsCAFile"),
        ("amqps://localhost?cafile=", "cafile"),
        ("tls://localhost?certfile=", "certfile"),
        ("kafka://localhost?security.protocol=SSL&ssl.ca.location=", "ssl.ca.location"),
    ],
)
@pytest.mark.parametrize("file", ["/nowhere/ca.pem", "/"])
async def test_a_file_that_cannot_be_read_is_told(url: str, named: str, file: str) -> None:
    if url.startswith("kafka"):
        file = "/nowhere/ca.pem"  # there it may be a directory
    with pytest.raises(ConfigError) as caught:
        await _open(f"{url}{file}")

    assert named in str(caught.value)
    assert "running" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["tls", "amqps"])
async def test_a_key_without_its_certificate_is_refused(scheme: str, tmp_path: Path) -> None:
    (key := tmp_path / "key.pem").touch()

    with pytest.raises(ConfigError, match="certfile"):
        await _open(f"{scheme}://localhost?keyfile={key}")


@pytest.mark.parametrize("scheme", ["tls", "amqps"])
async def test_a_file_that_is_no_certificate_is_told(scheme: str, tmp_path: Path) -> None:
    (file := tmp_path / "ca.pem").write_text("hello")

    with pytest.raises(ConfigError, match="no certificate"):
        await _open(f"{scheme}://localhost?cafile={file}")


def test_trouble_with_tls_while_a_worker_runs_may_pass() -> None:
    code = KafkaError._SSL

    assert isinstance(from_code(KafkaError(code), "polling"), Unavailable)


async def _open(url: str) -> None:
    async with opened(url, office="memory://", office_durability="none"):
        pass
