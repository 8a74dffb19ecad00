"""A client library that is not installed is named, with what this installation can do."""

import subprocess
import sys

import pytest

from deadletter.kit import missing_client

OPENING = """
import asyncio, sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))
from deadletter.core.errors import ConfigError
from deadletter.wiring.engines import open_engine
from deadletter.wiring.foreign import opened_foreign

async def main():
    if sys.argv[1].startswith("amqp"):
        async with opened_foreign(sys.argv[1]):
            pass
    await open_engine(sys.argv[1])

try:
    asyncio.run(main())
except ConfigError as error:
    print(error)
"""


def refused(url: str, *missing: str) -> str:
    """The error for an engine, in a process in which these packages are missing."""
    words = [sys.executable, "-c", OPENING, url, *missing]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_an_engine_without_its_client_names_the_extra_and_other_engines() -> None:
    said = refused("postgresql://db.example/shop", "asyncpg", "confluent_kafka")

    assert said.startswith(
        "postgresql:// needs deadletter[postgresql]: pip install 'deadletter[postgresql]';"
        " this installation can do memory, sqlite, "
    )
    assert "postgresql," not in said
    assert "kafka" not in said
    assert "redis" in said


def test_a_drain_without_its_client_does_too() -> None:
    said = refused("amqp://broker.example/", "pamqp")

    assert said.startswith("amqp:// needs deadletter[rabbitmq]")
    assert "amqp," not in said.partition("can do")[2]


@pytest.mark.parametrize(
    "scheme", ["postgresql", "mongodb", "redis", "bullmq", "sqs", "kafka", "amqp", "nats"]
)
def test_every_engine_of_ours_is_among_them(scheme: str) -> None:
    assert scheme in str(missing_client("x", "y")).partition("can do")[2]
