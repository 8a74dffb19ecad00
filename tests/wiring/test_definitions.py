"""What cannot be is refused where it is written, with what to write instead."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from deadletter import (
    App,
    BrakePolicy,
    ConfigError,
    Delivery,
    DLQPolicy,
    ErrorClassifier,
    Exponential,
    Fixed,
    Linear,
    Message,
    RetryLater,
    Route,
    Rule,
    Trouble,
    open_engine,
)
from deadletter.core.failure import Fail
from office.making import NOW

SECRET = "hunter2"


async def handle(order: dict[str, Any]) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": {"max_attempts": 3}}, r"write DLQPolicy\(max_attempts=5\)"),
        (
            {"idempotent": "id"},
            "must be True, False or a function, got 'id': a function reads the key",
        ),
        ({"brake": True}, "brake must be a BrakePolicy, or None for no brake, got True"),
        ({"middleware": "trace"}, "middleware must be a list of functions, got"),
        ({"middleware": ["trace"]}, "middleware must be a list of functions, got"),
        ({"slots": 0}, "slots must be a whole number >= 1, got 0"),
        ({"slots": "4"}, "slots must be a whole number >= 1, got '4'"),
        ({"slots": 2.5}, "slots must be a whole number >= 1, got 2.5"),
        ({"lease": "60"}, "lease must be a number of seconds > 0, got '60'"),
        (
            {"time_limit": "15m"},
            "time_limit must be a number of seconds > 0, or None for no limit, got '15m'",
        ),
        ({"heartbeat": 0}, "heartbeat must be a number of seconds > 0"),
        ({"grace": -1}, "grace must be a number of seconds >= 0, got -1"),
        ({"ledger_ttl": None}, "ledger_ttl must be a number of seconds > 0, got None"),
        ({"isolation": "thread"}, 'isolation must be "process" or None, got'),
        ({"memory_limit": 10}, 'isolated handlers only: add isolation="process"'),
        ({"slots": True}, "slots must be a whole number >= 1, got True"),
        (
            {"idempotent": lambda message, mailbox: "x"},
            r"is called as <lambda>\(message\), but takes \(message, mailbox\)",
        ),
    ],
)
def test_options_of_a_handler(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        App("memory://").handler("orders", **options)(handle)


@pytest.mark.parametrize(
    ("mailbox", "says"),
    [
        (handle, r'write @app\.handler\("orders"\), with parentheses'),
        ("", "mailbox must be a name, as in .*, got ''"),
        (None, "mailbox must be a name, as in .*, got None"),
    ],
)
def test_the_mailbox_of_a_handler(mailbox: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        App("memory://").handler(mailbox)


def answers(order: dict[str, Any]) -> Iterator[int]:
    yield 1


async def answers_later(order: dict[str, Any]) -> AsyncIterator[int]:
    yield 1


class Answers:
    def __call__(self, order: dict[str, Any]) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize("function", [answers, answers_later, Answers()])
def test_handlers_whose_body_would_never_run(function: Any) -> None:
    with pytest.raises(ConfigError, match="is a generator, so calling it would not ru"):
        App("memory://").handler("orders")(function)
    with pytest.raises(ConfigError, match="is a generator"):
        App("memory://").letter_handler("orders-dlq")(function)


def test_handlers_that_are_not_functions() -> None:
    function: Any = "charge"

    with pytest.raises(ConfigError, match="a handler must be a function, got 'charge'"):
        App("memory://").handler("orders")(function)


def test_isolated_handlers_that_another_process_cannot_find() -> None:
    with pytest.raises(ConfigError, match="must be a function at the top of a module"):
        App("memory://").handler("orders", isolation="process")(lambda order: None)


def test_letter_handlers() -> None:
    app, mailbox = App("memory://"), cast("Any", handle)

    with pytest.raises(ConfigError, match=r'write @app\.letter_handler\("orders"\)'):
        app.letter_handler(mailbox)
    with pytest.raises(ConfigError, match=r"mailbox must be a name, as in .*, got 5"):
        app.letter_handler(cast("Any", 5))
    with pytest.raises(ConfigError, match=r"is called as <lambda>\(letter\), but"):
        app.letter_handler("orders-dlq")(lambda: None)


def test_functions_that_name_causes() -> None:
    function: Any = lambda failure: "quota"  # noqa: E731

    with pytest.raises(ConfigError, match=r"is called as <lambda>\(failure, message\)"):
        App("memory://").fingerprint(function)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"version": 1.8}, 'write version="1.8"'),
        ({"url": ""}, "begins with a scheme"),
        ({"url": 5}, "a URL must be text such as 'sqlite:///shop.db', got 5"),
        ({"url": "memory://", "office": 5}, "a URL must be text"),
        ({"url": "postgres:/shop"}, "a URL must begin with postgres://"),
        ({"url": f"postgresql://anna:{SECRET}@host:x/shop"}, "port is a number up to"),
        ({"url": "redis://host:99999"}, "port is a number up to 65535"),
    ],
)
def test_options_of_an_app(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        App(**given)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"mailbox": 5}, "mailbox must be a name, as in .*, got 5"),
        ({"id": ""}, "id of a message is empty"),
        ({"headers": ["tenant"]}, 'give a dict such as {"tenant": "eu"}'),
        ({"headers": 5}, 'give a dict such as {"tenant": "eu"}'),
    ],
)
async def test_messages(sent: dict[str, Any], says: str) -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match=says):
            await app.send(**{"mailbox": "orders", "body": {}} | sent)


@pytest.mark.parametrize("bodies", ["abc", b"abc", {"order": 1}, None, 5])
async def test_many_messages_are_a_list(bodies: Any) -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match=r"send_many takes a list of bodies, got"):
            await app.send_many("orders", bodies)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Fixed, r"Fixed\(seconds='5s'\) is not a time to wait"),
        (Linear, r"Linear\(step='5s'\) is not a time to wait"),
        (Exponential, r"Exponential\(base='5s'\) is not a time"),
        (lambda odd: Exponential(factor=odd), "would not grow: use 1 or more"),
        (lambda odd: Exponential(jitter=odd), "use a number from 0 to 1"),
        (lambda odd: BrakePolicy(cap=odd), r"BrakePolicy\(cap='5s'\) must be a number"),
        (lambda odd: BrakePolicy(hold=odd), "must be a number of seconds, or None"),
        (RetryLater, "use a number of seconds"),
        (lambda odd: Route(to=odd[:0], code="X"), "name another mailbox"),
        (lambda odd: Route(to="x-dlq", trouble=odd), "one of Trouble.TRANSIENT"),
        (lambda odd: Route(to=cast("Any", 5)), "use the name of a mailbox"),
        (lambda odd: Route(to="x-dlq", error=cast("Any", ValueError)), "must be text, such as"),
    ],
)
def test_waits_and_routes(make: Callable[[Any], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make("5s")


def test_dispositions_can_be_given_by_name() -> None:
    named: Any = {"expired": "fail"}
    sent = Message(id="m", body=b"", sent_at=NOW, expires_at=NOW)
    delivery = Delivery(message=sent, mailbox="orders")

    decision = DLQPolicy(dispositions=named).before(delivery, NOW)

    assert isinstance(decision, Fail)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_attempts": True}, "max_attempts must be >= 0"),
        ({"expire_after": "1h"}, "expire_after must be > 0 seconds.*got '1h'"),
        ({"routes": ({"to": "broken"},)}, r"write \(Route\(to="),
        ({"dead_queue": 5}, "dead_queue is 5: use the name of a mailbox"),
        ({"classifier": [Rule(id="r", trouble=Trouble.PERMANENT, texts=("no",))]},
         r"write DEFAULT\.extended\(Rule\(\.\.\.\)\)"),
        ({"max_attempts": "5"}, "max_attempts must be >= 0"),
        ({"backoff": 5}, r"such as NoBackoff\(\), Fixed\(5\.0\)"),
        ({"include_errors": [ValueError]}, r"such as frozenset\(\{ValueError\}\)"),
        ({"dispositions": {"fatal": "dead-letter"}}, "such as {Trouble.UNKNOWN: "),
        ({"dispositions": {Trouble.UNKNOWN: "bury"}}, "dispositions retry, dead-letter"),
        ({"expire_after": 0}, "expire_after must be > 0 seconds"),
    ],
)  # fmt: skip
def test_options_of_a_policy(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DLQPolicy(**options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trouble": "fatal", "texts": ("no",)}, "one of Trouble.TRANSIENT, Trouble.PERM"),
        ({"trouble": None, "texts": ("no",)}, "trouble must be one of .*got None"),
        ({"trouble": Trouble.LOOP, "predicate": "no"}, "predicate must be a function .*got 'no'"),
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
        ("sqlite:///shop.db?synchronus=full", "did you mean 'synchronous'"),
        ("sqlite:///shop.db?synchronous=never", "SQLite URL must be full or normal"),
        (f"postgresql://anna:{SECRET}@host:x/shop", "port is a number up to 65535"),
        (f"postgresql://anna:{SECRET}@[host/shop", "port is a number up to 65535"),
        (f"postgresql://anna:{SECRET}@h/x?sslmod=require", "did you mean 'sslmode'"),
        ("postgresql://host/shop?pool=many", "PostgreSQL URL must be a number from 1"),
        (f"redis://:{SECRET}@host:x", "port is a number up to 65535"),
        (f"redis://:{SECRET}@host/zero", "write it as in redis://host:6379/0"),
        (f"redis://:{SECRET}@host?prefx=x", "did you mean 'prefix'"),
        ("redis+unix://", "as in redis\\+unix:///run/redis.sock"),
        (f"bullmq://:{SECRET}@host:x", "port is a number up to 65535"),
        (f"amqp://anna:{SECRET}@host:x", "port is a number up to 65535"),
        (f"amqp://anna:{SECRET}@host?heartbeet=1", "known are: heartbeat"),
        ("amqp://host?heartbeat=often", "number of seconds up to 3600, got 'often'"),
        ("kafka://", "as in kafka://host:9092"),
        (f"kafka://anna:{SECRET}@host:x", "port is a number up to 65535"),
        (f"kafka://anna:{SECRET}#1@host:9092", "port is a number up to 65535"),
        ("kafka://one:9092,two:x", "port is a number up to 65535"),
        ("kafka://host:9092?partitions=many", "partitions in the Kafka URL must be a num"),
        ("kafka://host:9092?partition=2", "known are: group, prefix"),
        (f"nats://anna:{SECRET}@host:x", "port is a number up to 65535"),
        ("nats://host?replica=3", "known are: prefix, replicas"),
        (f"mongodb://anna:{SECRET}@host:x/shop", "port is a number up to 65535"),
        ("mongodb://host/shop?replicaSett=x", "Did you mean one of \\(replicaset"),
        ("mongodb://", "write it like mongodb://"),
        (
            "sqs://eu-west-1?prefx=x",
            "known are: account, claim_check, create, prefix, region, retry",
        ),
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
