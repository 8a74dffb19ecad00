"""What was set up wrongly is said in a sentence that tells what to do."""

import sys
from pathlib import Path

import aiormq
import pytest

from deadletter.brokers import rabbitmq
from deadletter.brokers.amqp.address import read_url
from deadletter.brokers.rabbitmq.connection import _check_version
from deadletter.brokers.rabbitmq.engine import connect
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_bench import LEASE, a_message
from engines.rabbitmq_rig import opened, usual
from servers import Server


async def declare(url: str, name: str, **arguments: object) -> None:
    """Somebody else makes a queue."""
    connection = await aiormq.connect(url)
    channel = await connection.channel()
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    await channel.queue_declare(name, durable=True, arguments=named)
    await connection.close()


async def opening(url: str) -> None:
    engine = await connect(url, clock=FakeClock())
    await engine.close()


async def test_a_wrong_password_says_where_to_put_the_right_one(rabbitmq_server: Server) -> None:
    url = rabbitmq_server.url.replace("guest:guest", "guest:wrong")

    with pytest.raises(ConfigError, match="right user and password into the URL"):
        await opening(url)


async def test_a_wrong_vhost_says_how_to_name_another(rabbitmq_server: Server) -> None:
    with pytest.raises(ConfigError, match=r"rejected our access to the vhost.*vhost nowhere"):
        await opening(f"{rabbitmq_server.url}nowhere")


async def test_an_unreachable_broker_error_asks_whether_it_runs() -> None:
    with pytest.raises(Unavailable, match="is RabbitMQ running"):
        await opening("amqp://127.0.0.1:1/")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://host/", "begin with amqp://"),
        ("amqp://host/?colour=red", "unknown parameter 'colour'"),
        ("amqp://host/?heartbeat=often", "must be a number of seconds"),
        ("amqp://host/?management=web", "a port such as 15672"),
        ("amqp://host/?management=0", "a port"),
        ("amqp://host:port/", "cannot be read"),
        ("amqp://host/?cafile=x", "needs TLS"),
    ],
)
def test_an_odd_url_says_what_is_odd(url: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_url(url)


def test_a_url_says_it_all(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    address = read_url(f"amqps://me:p%40ss@host/my%2Fhost?cafile={ca}&heartbeat=5")

    assert (address.user, address.password) == ("me", "p@ss")
    assert (address.host, address.port, address.vhost) == ("host", 5671, "my/host")
    assert (address.tls, address.cafile, address.heartbeat) == (True, str(ca), 5)


async def test_tls_with_a_broker_that_has_none_says_so(rabbitmq_server: Server) -> None:
    with pytest.raises(ConfigError, match="TLS handshake"):
        await opening(rabbitmq_server.url.replace("amqp://", "amqps://"))


async def test_a_certificate_that_cannot_be_read_says_so() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        await opening("amqps://127.0.0.1:1/?cafile=/nowhere.pem")


def test_the_default_vhost_is_a_slash() -> None:
    assert read_url("amqp://host").vhost == read_url("amqp://host/").vhost == "/"


def test_a_broker_that_is_too_old_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"3\.10 or later"):
        _check_version("3.9.29", "here")
    _check_version("3.10.8", "here")
    _check_version("4.1.0", "here")


async def test_a_missing_client_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("deadletter.brokers.rabbitmq.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(rabbitmq, "engine", raising=False)
    monkeypatch.setitem(sys.modules, "pamqp", None)

    with pytest.raises(ConfigError, match=r"pip install 'deadletter\[rabbitmq\]'"):
        await rabbitmq.open_engine("amqp://x", clock=FakeClock(), dice=SeededDice())


async def test_a_classic_queue_of_that_name_is_refused(rabbitmq_server: Server) -> None:
    async with opened(rabbitmq_server.url) as engine:
        await declare(rabbitmq_server.url, "orders")

        with pytest.raises(ConfigError, match="not a quorum queue"):
            await engine.broker.sink("orders").send([a_message()])
        with pytest.raises(ConfigError, match="not a quorum queue"):
            await usual(engine, 1)


async def test_a_delivery_limit_that_would_be_in_our_way_is_refused(
    rabbitmq_server: Server,
) -> None:
    async with opened(rabbitmq_server.url) as engine:
        await declare(rabbitmq_server.url, "orders", x_queue_type="quorum", x_delivery_limit=2)

        sentence = await engine.broker.conflict("orders", attempts=1)
        assert sentence is not None
        assert "Create it again with 5 or more" in sentence
        with pytest.raises(ConfigError, match=r"x-delivery-limit 2.*with 5 or more"):
            await usual(engine, 1)


async def test_a_quorum_queue_with_arguments_of_its_own_is_taken_as_it_is(
    rabbitmq_server: Server,
) -> None:
    async with opened(rabbitmq_server.url) as engine:
        await declare(
            rabbitmq_server.url,
            "orders",
            x_queue_type="quorum",
            x_delivery_limit=50,
            x_max_length=1000,
            x_dead_letter_exchange="",
            x_dead_letter_routing_key="elsewhere",
        )

        await engine.broker.sink("orders").send([a_message()])

        assert await engine.broker.conflict("orders", attempts=100) is None
        assert len(await usual(engine, 1)) == 1


async def test_a_full_queue_that_refuses_says_so(rabbitmq_server: Server) -> None:
    async with opened(rabbitmq_server.url) as engine:
        await declare(
            rabbitmq_server.url,
            "orders",
            x_queue_type="quorum",
            x_max_length=1,
            x_overflow="reject-publish",
        )
        sink = engine.broker.sink("orders")

        await sink.send([a_message() for _ in range(5)])

        with pytest.raises(Unavailable, match="is the queue full"):
            await sink.send([a_message()])


@pytest.mark.parametrize("name", ["x" * 300, "ü" * 200, "amq.orders"])
async def test_names_that_rabbitmq_cannot_have_are_refused(
    rabbitmq_server: Server, name: str
) -> None:
    async with opened(rabbitmq_server.url) as engine:
        with pytest.raises(ConfigError):
            engine.broker.source(name)


async def test_a_closed_engine_says_so(rabbitmq_server: Server) -> None:
    async with opened(rabbitmq_server.url) as engine:
        await engine.close()

        with pytest.raises(Unavailable, match="closed"):
            await engine.broker.source("orders").receive(limit=1, wait=0, lease=LEASE)
