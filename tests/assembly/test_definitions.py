"""What cannot be is refused where it is written, with what to write instead."""

import os
from pathlib import Path
from typing import Any

import pytest

from deadletter import (
    App,
    ConfigError,
    DLQPolicy,
    ErrorClassifier,
    Rule,
    Trouble,
    open_engine,
)


async def handle(order: dict[str, Any]) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": {"max_attempts": 3}}, r"write DLQPolicy\(max_attempts=5\)"),
        ({"idempotent": "id"}, "use True, or a function that reads the key"),
        ({"brake": True}, r"use a BrakePolicy\(\), or None"),
        ({"middleware": "trace"}, "use a list of functions"),
        ({"middleware": ["trace"]}, "use a list of functions"),
        ({"slots": 0}, "slots=0 cannot be: use a whole number"),
        ({"slots": "4"}, "slots='4' cannot be: use a whole number"),
        ({"slots": 2.5}, "slots=2.5 cannot be: use a whole number"),
        ({"lease": "60"}, "lease='60' cannot be: use seconds above 0"),
        ({"time_limit": "15m"}, "time_limit='15m' cannot be: use seconds"),
        ({"heartbeat": 0}, "heartbeat=0 cannot be"),
        ({"grace": -1}, "grace=-1 cannot be: use seconds, 0 or more"),
        ({"ledger_ttl": None}, "ledger_ttl=None cannot be"),
        ({"isolation": "thread"}, 'use "process", or None'),
        ({"memory_limit": 10}, 'memory_limit needs isolation="process"'),
    ],
)
def test_options_of_a_handler(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        App("memory://").handler("orders", **options)(handle)


@pytest.mark.parametrize(
    ("mailbox", "says"),
    [
        (handle, r'write @app\.handler\("orders"\), with parentheses'),
        ("", "mailbox='' cannot be: use its name"),
        (None, "mailbox=None cannot be: use its name"),
    ],
)
def test_the_mailbox_of_a_handler(mailbox: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        App("memory://").handler(mailbox)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"classifier": [Rule(id="r", trouble=Trouble.PERMANENT, texts=("no",))]},
         r"write DEFAULT\.extended\(Rule\(\.\.\.\)\)"),
        ({"max_attempts": "5"}, "use 1 or more, or 0 to try for ever"),
        ({"backoff": 5}, r"use NoBackoff\(\), Fixed\(5\.0\)"),
        ({"include_errors": [ValueError]}, r"write frozenset\(\{ValueError\}\)"),
        ({"dispositions": {"fatal": "dead-letter"}}, "write {Trouble.UNKNOWN: "),
        ({"dispositions": {Trouble.UNKNOWN: "bury"}}, "with one of retry, dead-letter"),
        ({"expire_after": 0}, "use seconds above 0"),
    ],
)  # fmt: skip
def test_options_of_a_policy(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DLQPolicy(**options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trouble": "fatal", "texts": ("no",)}, "use Trouble.TRANSIENT, Trouble.PERM"),
        ({"trouble": None, "texts": ("no",)}, "trouble=None cannot be"),
        ({"trouble": Trouble.LOOP, "predicate": "no"}, "predicate='no' cannot be"),
        ({"trouble": Trouble.LOOP, "texts": "no"}, "texts must be a list of texts"),
        ({"trouble": Trouble.LOOP}, "matches nothing: give it at least one of"),
    ],
)
def test_options_of_a_rule(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Rule(id="mine", **options)


def test_the_kind_of_trouble_may_be_its_name() -> None:
    trouble: Any = "permanent"

    assert Rule(id="mine", trouble=trouble, texts=("no",)).trouble is Trouble.PERMANENT


@pytest.mark.parametrize("rules", [Rule, "rules.toml", [None]])
def test_the_rules_of_a_classifier(rules: Any) -> None:
    with pytest.raises(ConfigError, match=r"write ErrorClassifier\(\(Rule"):
        ErrorClassifier(rules)


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("shop.db", "begins with a scheme, as in sqlite:///shop.db"),
        ("/srv/shop.db", "begins with a scheme, as in sqlite:////srv/shop.db"),
        ("localhost:6379", "begins with a scheme"),
        ("sqlite:shop.db", "write sqlite:///name.db"),
        ("sqlite:/shop.db", "write sqlite:///name.db"),
        ("sqlite://shop.db", "write sqlite:///name.db"),
        ("sqlite:///", "write sqlite:///name.db"),
        (f"sqlite://anna:{SECRET}@host/shop.db", "write sqlite:///name.db"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite:///shop.db#1", "write it as %23"),
        ("sqlite3:///shop.db", "did you mean sqlite://"),
        (f"psql://anna:{SECRET}@host/shop", "did you mean postgresql://"),
        (f"postgresql+asyncpg://anna:{SECRET}@host/x", "did you mean postgresql://"),
        (f"rabbitmq://anna:{SECRET}@host", "did you mean amqp://"),
        (f"mongo://anna:{SECRET}@host/shop", "did you mean mongodb://"),
        (f"redsi://:{SECRET}@host", "did you mean redis://"),
        ("http://host:8418", "use --server or DLQ_SERVER"),
        ("carrier-pigeon://host", "use one of amqp://"),
    ],
)
def test_urls_that_name_no_engine_or_file(url: str, says: str) -> None:
    for options in ({}, {"office": url}):
        with pytest.raises(ConfigError, match=says) as caught:
            App(url if not options else "memory://", **options)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///no/such/folder/shop.db", "its directory does not exist"),
        ("sqlite:///shop.db?synchronus=full", "known is: synchronous"),
        ("sqlite:///shop.db?synchronous=never", "synchronous is full or normal"),
        (f"postgresql://anna:{SECRET}@host:x/shop", "port is a number up to 65535"),
        (f"postgresql://anna:{SECRET}@[host/shop", "port is a number up to 65535"),
        (f"postgresql://anna:{SECRET}@h/x?sslmod=require", "did you mean sslmode"),
        ("postgresql://host/shop?pool=many", "pool is a number from 1 to"),
        (f"redis://:{SECRET}@host:x", "port is a number up to 65535"),
        (f"redis://:{SECRET}@host/zero", "write it as in redis://host:6379/0"),
        (f"redis://:{SECRET}@host?prefx=x", "known are: prefix"),
        ("redis+unix://", "as in redis\\+unix:///run/redis.sock"),
        (f"bullmq://:{SECRET}@host:x", "port is a number up to 65535"),
        (f"amqp://anna:{SECRET}@host:x", "port is a number up to 65535"),
        (f"amqp://anna:{SECRET}@host?heartbeet=1", "known are: heartbeat"),
        ("amqp://host?heartbeat=often", "number of seconds up to 3600, got 'often'"),
        ("kafka://", "as in kafka://host:9092"),
        (f"kafka://anna:{SECRET}@host:x", "port is a number up to 65535"),
        (f"kafka://anna:{SECRET}#1@host:9092", "port is a number up to 65535"),
        ("kafka://one:9092,two:x", "port is a number up to 65535"),
        ("kafka://host:9092?partitions=many", "partitions in the Kafka URL is a num"),
        ("kafka://host:9092?partition=2", "known are: group, prefix"),
        (f"nats://anna:{SECRET}@host:x", "port is a number up to 65535"),
        ("nats://host?replica=3", "may have \\?prefix, replicas"),
        (f"mongodb://anna:{SECRET}@host:x/shop", "username and password must be esc"),
        ("mongodb://host/shop?replicaSett=x", "Did you mean one of \\(replicaset"),
        ("mongodb://", "write it like mongodb://"),
        ("sqs://eu-west-1?prefx=x", "known are: claim_check, prefix, region"),
        (f"sqs+http://key:{SECRET}@", "sqs\\+http://localhost:4566"),
        ("memory://shop", "nothing follows memory://"),
    ],
)
async def test_urls_that_an_engine_cannot_use(
    url: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=says) as caught:
        await open_engine(url, office="memory://", office_durability="none")

    assert SECRET not in str(caught.value)
    assert os.listdir(tmp_path) == []  # noqa: PTH208
