"""Servers of others that are not there, or cannot be: what is said about it."""

import socket

import pytest

from deadletter.brokers.kafka.address import read_url
from deadletter.brokers.sqs.drain import URL as SQS_URL
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.kit import is_called_dead, near_names
from deadletter.wiring.engines import OWN
from deadletter.wiring.foreign import opened_foreign

# Engines that are no servers of others, or whose letters lie in the office itself.
NOT_DRAINED = {"stores.memory", "stores.sqlite", "stores.postgresql", "stores.mongodb"}
DRAINED_AS_REDIS = {"brokers.bullmq"}


@pytest.fixture
def nobody() -> str:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("scheme", "server"),
    [
        ("amqp", "RabbitMQ"),
        ("amqps", "RabbitMQ"),
        ("redis", "Redis"),
        ("rediss", "Redis"),
        ("valkey", "Redis"),
        ("valkeys", "Redis"),
        ("nats", "NATS"),
        pytest.param("kafka", "Kafka", marks=pytest.mark.slow),
    ],
)
async def test_an_unreachable_server_is_named_with_its_port(
    scheme: str, server: str, nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Unavailable) as caught:
        async with opened_foreign(f"{scheme}://{nobody}"):
            pass

    said = f"no answer from {nobody}: is {server} running, and is the URL right?"
    assert str(caught.value).startswith(said)
    assert caplog.records == []  # no library has a word of its own


async def test_a_socket_is_named_by_its_path() -> None:
    with pytest.raises(Unavailable, match=r"no answer from /nowhere/redis\.sock"):
        async with opened_foreign("redis+unix:///nowhere/redis.sock"):
            pass


@pytest.mark.parametrize(
    "url",
    [
        "amqp://localhost:x",
        "redis://localhost:x",
        "nats://localhost:x",
        "sqs+http://key:hunter2@localhost:x",
    ],
)
async def test_an_invalid_port_is_a_url_error(url: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        async with opened_foreign(url):
            pass

    assert "hunter2" not in str(caught.value)


async def test_the_list_of_what_can_be_drained_is_whole() -> None:
    with pytest.raises(ConfigError, match="cannot drain from") as caught:
        async with opened_foreign("mysql://localhost"):
            pass

    names = {scheme for scheme, home in OWN.items() if home not in NOT_DRAINED | DRAINED_AS_REDIS}
    assert {"redis+unix", "amqps", "tls", "sqs+http"} <= names
    assert [one for one in names if f"{one}://" not in str(caught.value)] == []


def test_the_kafka_url_says_which_fields_copies_keep() -> None:
    url = "kafka://localhost?keep=partition,timestamp&consumer=billing"

    address = read_url(url)

    assert address.keep == {"partition", "timestamp"}
    assert address.consumer == "billing"
    with pytest.raises(ConfigError, match="keep=offset is unknown"):
        read_url("kafka://localhost?keep=offset")


def test_copies_go_unmarked_only_if_an_sqs_url_says_so() -> None:
    assert SQS_URL.read("sqs://eu-west-1").options.unmarked == "no"
    assert SQS_URL.read("sqs://eu-west-1?unmarked=yes").options.unmarked == "yes"


@pytest.mark.parametrize(
    "name", ["orders.DLT", "orders-dlt", "orders_dlq", "ORDERSDLQ", "dlq-orders"]
)
def test_dead_places_are_known_by_their_names(name: str) -> None:
    assert is_called_dead(name)
    assert not is_called_dead("orders")
    assert not is_called_dead("deadlines")


def test_names_that_may_have_been_meant_are_asked_for() -> None:
    known = ["orders-dlq", "payments"]

    assert near_names("Orders-DQL", known) == " Did you mean 'orders-dlq'?"
    assert near_names("xyz", known) == ""
