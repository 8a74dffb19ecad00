"""What a consumer developer holds in hand."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from deadletter import App, DLQPolicy, open_engine, opened
from deadletter.core.errors import ConfigError
from deadletter.core.events import Event
from deadletter.core.query import parse
from deadletter.ports import Fate
from deadletter.testing.fakes import eventually
from office.making import make_letter


async def test_send_returns_the_id_and_the_message_is_there_as_sent(tmp_path: Path) -> None:
    async with App(f"sqlite:///{tmp_path}/a.db") as app:
        sent = await app.send(
            "orders",
            {"a": 1},
            key="k",
            headers={"tenant": "eu", "odd": b"\xff"},
            idempotency_key="pay-1",
            reply_to="answers",
            expires_in=60,
            traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        )
        engine = await app.engine()
        (delivery,) = await engine.broker.source("orders").receive(limit=1, wait=1, lease=10)

    message = delivery.message
    assert message.id == sent
    assert message.body == b'{"a":1}'
    assert message.content_type == "application/json"
    assert message.headers == (("tenant", b"eu"), ("odd", b"\xff"))
    assert (message.key, message.idempotency_key) == ("k", "pay-1")
    assert message.reply_to == "answers"
    assert message.expires_at is not None
    assert message.traceparent is not None


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"key": 3}, "key=3 of a message is of type int: give text"),
        ({"id": b"m-1"}, "id=b'm-1' of a message is of type bytes: give text"),
        ({"reply_to": 3}, "reply_to=3"),
        ({"idempotency_key": 3}, "idempotency_key=3"),
        ({"content_type": 3}, "content_type=3"),
        ({"traceparent": 3}, "traceparent=3"),
        ({"headers": {3: "eu"}}, "header name 3 is of type int: give text"),
        ({"headers": {"tenant": "\ud800"}}, "not Unicode: .*; give it as bytes"),
        ({"id": "m-\udc80"}, r"id='m-\\udc80' of a message is not Unicode: .* 3"),
        ({"key": "\udc80"}, r"key='\\udc80' of a message is not Unicode"),
        ({"idempotency_key": "\udc80"}, "idempotency_key=.* is not Unicode"),
        ({"reply_to": "\udc80"}, "reply_to=.* is not Unicode"),
        ({"content_type": "\udc80"}, "content_type=.* is not Unicode"),
        ({"traceparent": "\udc80"}, "traceparent=.* is not Unicode"),
        ({"tracestate": "\udc80"}, "tracestate=.* is not Unicode"),
        ({"headers": {"h\udc80": "x"}}, "header name=.* is not Unicode"),
        ({"id": "x" * 8193}, "has 8,193 bytes: up to 8,192 are allowed"),
        ({"key": "é" * 4097}, "has 8,194 bytes: up to 8,192 are allowed"),
        ({"headers": {"x" * 8193: "x"}}, "header name=.* has 8,193 bytes"),
        ({"delay": math.nan}, "delay must be a number of seconds.*got nan"),
        ({"delay": math.inf}, "delay must be a number of seconds.*got inf"),
        ({"delay": "60"}, "delay must be a number of seconds.*got '60'"),
        ({"expires_in": math.inf}, "expires_in must be a number of seconds.*got inf"),
        ({"expires_in": 1e15}, "at most 3,153,600,000"),
    ],
)
async def test_invalid_send_options_are_rejected_and_nothing_is_sent(
    said: dict[str, Any], what: str
) -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match=what):
            await app.send("orders", b"x", **said)
        queues = await (await app.engine()).broker.queues()

    assert not sum(queue.ready + queue.delayed for queue in queues)


@pytest.mark.parametrize("body", ["half \udc80", {"text": "half \udc80"}])
async def test_a_body_that_is_not_unicode_is_not_sent(body: object) -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match="bytes"):
            await app.send("orders", body)


async def test_the_longest_texts_are_sent() -> None:
    async with App("memory://") as app:
        assert await app.send("orders", b"x", id="x" * 8192, key="é" * 4096)


@pytest.mark.parametrize("name", ["dlq-id", "DLQ-Source", "dlq-found", "dlq-"])
async def test_header_names_of_ours_are_refused(name: str) -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match="begins with dlq-, which is reserved"):
            await app.send("orders", b"x", headers={name: "lie"})

        assert (await (await app.engine()).broker.queues()) == []


async def test_many_are_not_sent_after_a_time_that_never_ends() -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match=r"delay must be .*got inf"):
            await app.send_many("orders", [b"x"], delay=math.inf)


async def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'nope://x' is not the URL of an engine.*sqlite://"):
        await open_engine("nope://x")


async def test_opened_uses_the_configured_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLQ_URL", f"sqlite:///{tmp_path}/office.db")

    async with opened() as engine:
        assert engine.features.engine == "sqlite"

    assert (tmp_path / "office.db").exists()


async def test_letters_can_be_kept_in_another_engine(tmp_path: Path) -> None:
    async with App("memory://", office=f"sqlite:///{tmp_path}/o.db") as app:
        letters = await app.letters()

        assert letters.features.engine == "sqlite"


async def test_working_indexes_the_texts_of_the_office(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLQ_INDEX_BODIES", "1000")
    letters = [make_letter(1, body=b"a zebra"), make_letter(2, error_text="a lion")]
    app = App(f"sqlite:///{tmp_path}/shop.db")

    @app.handler("orders")
    async def nothing(body: bytes) -> None: ...

    async with app:
        store = await app.letters()
        await store.keep(letters)
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))

        async def are_indexed() -> bool:
            searches = map(parse, ("zebra", "text:lion"))
            found = [await store.find(search) for search in searches]
            return all(page.looked_at == len(page.heads) == 1 for page in found)

        await eventually(are_indexed)
        stop.set()
        assert await working == 0


async def test_a_key_read_out_of_messages_is_handled_once() -> None:
    stop, done, fates = asyncio.Event(), list[int](), list[str]()

    def observe(event: Event) -> None:
        fates.append(getattr(event, "fate", ""))

    app = App("memory://", observe=observe)

    @app.handler(
        "orders", slots=1, idempotent=lambda one: one.body.decode()[:1], bodies_may_differ=True
    )
    async def handle(body: str) -> None:
        done.append(int(body))

    async with app:
        for body in ("11", "12", "23"):
            await app.send("orders", body)
        working = asyncio.create_task(app.work(stop))
        await eventually(lambda: len(done) == 2)
        await eventually(lambda: Fate.DUPLICATE in fates)
        stop.set()
        await working

    assert done == [11, 23]


def test_a_dead_queue_that_is_the_mailbox_itself_is_refused() -> None:
    app = App("memory://")

    with pytest.raises(ConfigError):
        app.handler("orders", policy=DLQPolicy(dead_queue="orders"))(lambda body: None)


def test_a_memory_limit_needs_processes() -> None:
    app = App("memory://")

    with pytest.raises(ConfigError, match="isolation"):
        app.handler("orders", memory_limit=1)


def test_an_isolation_that_would_be_none_is_refused() -> None:
    app = App("memory://")

    with pytest.raises(ConfigError, match='must be "process" or None'):
        app.handler("orders", isolation="proces")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="number of bytes > 0"):
        app.handler("orders", isolation="process", memory_limit=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 0},
        {"lease": -1.0},
        {"lease": math.nan},
        {"time_limit": 0.0},
        {"time_limit": math.nan},
        {"grace": -1.0},
        {"grace": math.nan},
    ],
)
def test_options_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    app = App("memory://")

    with pytest.raises(ConfigError):
        app.handler("orders", **wrong)(lambda body: None)  # type: ignore[arg-type]
