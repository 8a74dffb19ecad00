"""A wrong URL, wrong credentials, a missing queue: each says what to do."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from deadletter.brokers import sqs
from deadletter.brokers.sqs.connection import ERRORS, Address, NoQueue, address_of, entry_error
from deadletter.brokers.sqs.engine import URL
from deadletter.core.errors import ConfigError, Refused, Unavailable
from deadletter.system import SystemClock, SystemDice
from engines.sqs_rig import url_of
from servers import Server
from servers.common import free_port


def answered(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "no"},
            "ResponseMetadata": {"HTTPStatusCode": status},  # type: ignore[typeddict-item]
        },
        "ReceiveMessage",
    )


def read_url(url: str) -> Address:
    return address_of(URL.read(url))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqs://localhost:4566", r"sqs\+http://localhost:4566"),
        ("sqs://nowhere", "not an AWS region"),
        ("sqs://key:secret@eu-west-1", "AWS_ACCESS_KEY_ID"),
        ("sqs://eu-west-1?region=eu-north-1", "two regions"),
        ("sqs://?colour=red", "known are: account, claim_check, create, prefix, region, retry"),
        ("sqs:///orders", r"\?prefix="),
        ("sqs://?prefix=a b", "letters, digits"),
        ("sqs+http://", "sqs://eu-west-1"),
        ("sqs+http://host:port", "cannot be read"),
    ],
)
def test_a_wrong_url_says_how_to_write_it(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_url(url)


def test_urls_say_where() -> None:
    amazon = read_url("sqs://eu-west-1?prefix=shop-")
    emulator = read_url("sqs+http://k:s@localhost:4566?region=eu-west-1")

    assert (amazon.region, amazon.endpoint) == ("eu-west-1", None)
    assert URL.read("sqs://eu-west-1?prefix=shop-").options.prefix == "shop-"
    assert emulator.endpoint == "http://localhost:4566"
    assert emulator.keys == ("k", "s")
    assert "s@" not in emulator.where
    assert (amazon.is_amazon, emulator.is_amazon) == (True, False)


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("AWS.SimpleQueueService.NonExistentQueue", NoQueue, "no such queue"),
        ("RequestThrottled", Unavailable, "slow down"),
        ("InvalidAddress", Refused, "account or region"),
        ("ExpiredToken", Unavailable, "renew them"),
        ("AccessDenied", Refused, "sqs:SendMessage"),
        ("OverLimit", Unavailable, "120,000"),
        ("com.amazonaws.sqs#RequestThrottled", Unavailable, "slow down"),
        ("SomethingNew", Refused, "SomethingNew"),
    ],
)
def test_answers_of_the_service_are_translated(code: str, kind: type[Exception], says: str) -> None:
    ours = ERRORS.translate(answered(code))

    assert type(ours) is kind
    assert says in str(ours)


def test_errors_of_the_service_are_temporary() -> None:
    assert isinstance(ERRORS.translate(answered("Whatever", 500)), Unavailable)
    assert isinstance(entry_error({"Code": "InternalError"}), Unavailable)
    assert isinstance(entry_error({"Code": "Bad", "SenderFault": True}), Refused)


def test_a_wrong_key_is_a_matter_of_set_up_when_we_start() -> None:
    assert isinstance(
        ERRORS.translate_opening(answered("InvalidClientTokenId"), "SQS"), ConfigError
    )
    # Later on it passes: keys are changed under running programs.
    assert isinstance(ERRORS.translate(answered("InvalidClientTokenId")), Unavailable)


async def opening(url: str) -> Any:
    return await sqs.open_engine(url, clock=SystemClock(), dice=SystemDice())


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("no_aws")
async def test_without_a_region_we_say_where_to_set_it() -> None:
    with pytest.raises(ConfigError, match="AWS_REGION"):
        await opening("sqs://")


@pytest.mark.usefixtures("no_aws")
async def test_without_credentials_we_say_where_they_go() -> None:
    with pytest.raises(ConfigError, match="AWS_PROFILE"):
        await opening("sqs+http://127.0.0.1:9?region=eu-west-1")


async def test_when_nobody_answers_we_say_whom_we_asked() -> None:
    port = free_port()
    with pytest.raises(Unavailable, match=f"no answer from http://127.0.0.1:{port}"):
        await opening(f"sqs+http://k:s@127.0.0.1:{port}?region=eu-west-1")


async def test_a_claim_check_must_name_a_place() -> None:
    with pytest.raises(ConfigError, match="s3://bucket/prefix"):
        await opening("sqs+http://k:s@127.0.0.1:9?region=eu-west-1&claim_check=ftp://x")


async def test_without_its_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("deadletter.brokers.sqs.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiobotocore", None)
    monkeypatch.setitem(sys.modules, "aiobotocore.config", None)

    with pytest.raises(ConfigError, match=r"pip install 'deadletter\[sqs\]'"):
        await opening("sqs://")


async def test_names_that_sqs_cannot_have_are_refused(sqs_server: Server) -> None:
    engine = await opening(url_of(sqs_server))

    for name in ("a.b", "x" * 75, "orders--suspects", "é"):
        with pytest.raises(ConfigError, match=r"(?i)sqs|suspects"):
            engine.broker.source(name)

    await asyncio.wait_for(engine.close(), 5)
