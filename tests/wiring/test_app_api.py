"""The API of an App: shorthands, sending, defaults and hooks."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api_rig import check_attempt_limits
from deadletter import App, BrakePolicy, DLQPolicy, Fixed, Message, RegisteredHandler
from deadletter.core.errors import ConfigError
from deadletter.core.message import MAX_ATTEMPTS, Delivery, Lineage
from deadletter.runtime.handlers import Handler
from deadletter.sync import SyncApp
from deadletter.testing.fakes import eventually

NOW = datetime.now(UTC)


def a_message(**fields: Any) -> Message:
    return Message(**{"id": "m-1", "body": b"x", "sent_at": NOW, **fields})


async def received(app: App, mailbox: str = "orders") -> list[Message]:
    source = (await app.engine()).broker.source(mailbox)
    return [one.message for one in await source.receive(limit=100, wait=0.0, lease=10.0)]


async def worked(app: App, condition: Any) -> None:
    stop = asyncio.Event()
    working = asyncio.create_task(app.work(stop))
    await eventually(condition)
    stop.set()
    assert await working == 0


def options_of(app: App, mailbox: str = "orders") -> Any:
    return app._handlers[mailbox].options


async def test_limits_of_attempts_on_sqlite(tmp_path: Path) -> None:
    await check_attempt_limits(f"sqlite:///{tmp_path}/a.db", None, "orders")


async def test_limits_of_attempts_in_memory() -> None:
    await check_attempt_limits("memory://", None, "orders")


# The shorthand for fields of a policy.


def test_fields_of_a_policy_can_be_written_directly() -> None:
    app = App("memory://")

    @app.handler(
        "orders", max_attempts=5, backoff=Fixed(3.0), expire_after=60, dead_queue="{mailbox}-dlq"
    )
    async def handle(body: bytes) -> None: ...

    assert options_of(app).policy == DLQPolicy(
        max_attempts=5, backoff=Fixed(3.0), expire_after=60, dead_queue="{mailbox}-dlq"
    )


def test_a_shorthand_changes_single_fields_of_the_policy_of_the_app() -> None:
    app = App("memory://", policy=DLQPolicy(max_attempts=7, backoff=Fixed(3.0)))

    @app.handler("orders", max_attempts=2)
    async def handle(body: bytes) -> None: ...

    @app.handler("mails")
    async def mail(body: bytes) -> None: ...

    assert options_of(app).policy == DLQPolicy(max_attempts=2, backoff=Fixed(3.0))
    assert options_of(app, "mails").policy is app.policy


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"policy": DLQPolicy(), "max_attempts": 5, "backoff": Fixed(1.0)},
            r"max_attempts=, backoff= cannot be combined with policy=: set it in the policy",
        ),
        ({"max_attempts": -1}, "max_attempts must be >= 0 .*got -1"),
        ({"backoff": 3}, "backoff must be .*got 3"),
        ({"dead_queue": "orders"}, "its own dead-letter mailbox"),
        ({"brake": 3}, "brake must be a BrakePolicy, .*, got 3"),
        ({"slots": 0}, "slots must be a whole number >= 1, got 0"),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(given: Any, text: str) -> None:
    app = App("memory://")

    with pytest.raises(ConfigError, match=text):

        @app.handler("orders", **given)
        async def handle(body: bytes) -> None: ...


# Defaults of the App.


async def test_defaults_of_the_app_apply_to_handlers_that_say_nothing() -> None:
    calls: list[str] = []

    def layer(name: str) -> Any:
        def around(inner: Handler) -> Handler:
            async def call(delivery: Delivery) -> object:
                calls.append(name)
                return await inner(delivery)

            return call

        return around

    brake = BrakePolicy(threshold=50)
    app = App("memory://", slots=3, brake=brake, middleware=[layer("app")])

    @app.handler("orders", middleware=[layer("handler")])
    async def handle(body: bytes) -> None:
        calls.append("function")

    @app.handler("mails", slots=5, brake=None)
    def mail(body: bytes) -> None: ...

    assert (options_of(app).slots, options_of(app).brake) == (3, brake)
    assert (options_of(app, "mails").slots, options_of(app, "mails").brake) == (5, None)
    async with app:
        await handle.send(b"x")
        await worked(app, lambda: "function" in calls)
    assert calls == ["app", "handler", "function"]


def test_isolated_handlers_have_two_processes() -> None:
    app = App("memory://", slots=50)
    app.handler("orders", isolation="process")(print_body)
    app.handler("mails", isolation="process", slots=3)(print_body)

    assert (options_of(app).slots, options_of(app, "mails").slots) == (2, 3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"policy": 3}, "policy must be a DLQPolicy, got 3"),
        ({"brake": "no"}, "brake must be a BrakePolicy, .*, got 'no'"),
        ({"middleware": [3]}, "middleware must be a list of functions"),
        ({"slots": 0}, "slots must be a whole number >= 1, got 0"),
        ({"lifespan": 3}, "lifespan=3 must be a function of the App"),
    ],
)
def test_wrong_defaults_are_refused(given: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        App("memory://", **given)


# What the decorated function becomes.


async def test_the_function_stays_itself_and_sends() -> None:
    app = App("memory://")

    async def handle(body: bytes) -> str:
        return f"got {body.decode()}"

    decorated: RegisteredHandler[[bytes], Any] = app.handler("orders")(handle)

    assert decorated is handle  # type: ignore[comparison-overlap]
    assert await decorated(b"x") == "got x"
    async with app:
        sent = [
            await decorated.send(b"one", key="k"),
            *await decorated.send_many([b"two", (b"three", {"id": "3"})]),
        ]
        found = await received(app)
    assert [(one.id, one.body, one.key) for one in found] == [
        (sent[0], b"one", "k"),
        (sent[1], b"two", None),
        ("3", b"three", None),
    ]


async def test_a_function_for_two_mailboxes_sends_to_each() -> None:
    app = App("memory://")

    async def handle(body: bytes) -> bytes:
        return body

    first = app.handler("first")(handle)
    second = app.handler("second")(handle)

    assert inspect.iscoroutinefunction(second)
    assert await second(b"x") == b"x"
    async with app:
        await first.send(b"1")
        await second.send(b"2")
        assert [one.body for one in await received(app, "first")] == [b"1"]
        assert [one.body for one in await received(app, "second")] == [b"2"]


async def test_methods_can_be_handlers_and_send() -> None:
    app = App("memory://")
    seen: list[bytes] = []

    class Shop:
        def charge(self, body: bytes) -> None:
            seen.append(body)

    charge = app.handler("orders")(Shop().charge)
    charge(b"direct")
    async with app:
        await charge.send(b"sent")
        await worked(app, lambda: len(seen) == 2)
    assert seen == [b"direct", b"sent"]


def test_all_ways_to_send_take_the_same_parameters() -> None:
    for name in ("send", "send_many"):
        of_app = list(inspect.signature(getattr(App, name)).parameters.values())
        of_sync = list(inspect.signature(getattr(SyncApp, name)).parameters.values())
        of_handler = list(inspect.signature(getattr(RegisteredHandler, name)).parameters.values())
        assert of_sync == of_app
        assert of_handler == [of_app[0], *of_app[2:]]  # without the mailbox


@pytest.mark.parametrize("method", ["__init__", "handler", "send", "send_many", "work"])
def test_every_parameter_is_documented(method: str) -> None:
    function = getattr(App, method)
    text = App.__doc__ if method == "__init__" else function.__doc__
    names = [name for name in inspect.signature(function).parameters if name != "self"]

    lines = [line.strip() for line in (text or "").splitlines()]
    undocumented = [n for n in names if not any(line.startswith(f"{n}: ") for line in lines)]
    assert undocumented == []


def test_every_field_of_a_policy_is_documented() -> None:
    text = DLQPolicy.__doc__ or ""

    assert [name for name in DLQPolicy.__struct_fields__ if f"{name}: " not in text] == []


# Sending.


async def test_many_take_bodies_messages_and_pairs() -> None:
    async with App("memory://") as app:
        sent = await app.send_many(
            "orders",
            [
                {"a": 1},
                a_message(headers=(("tenant", b"eu"),), key="k"),
                ("text", {"id": "t", "headers": {"tenant": "us"}, "idempotency_key": "pay"}),
                (1, 2),
                (1, 2, {"id": "not options"}),
            ],
        )
        found = await received(app)

    assert sent == [one.id for one in found]
    assert (sent[1], sent[2]) == ("m-1", "t")
    assert [one.body for one in found] == [
        b'{"a":1}',
        b"x",
        b"text",
        b"[1,2]",
        b'[1,2,{"id":"not options"}]',
    ]
    assert found[1].headers == (("tenant", b"eu"),)
    assert found[2].headers == (("tenant", b"us"),)
    assert (found[1].key, found[2].idempotency_key) == ("k", "pay")


async def test_a_received_message_is_forwarded_as_a_new_one() -> None:
    message = a_message(
        headers=(("dlq-in-reply-to", b"m-0"), ("tenant", b"eu"), (MAX_ATTEMPTS, b"3")),
        lineage=Lineage(letter_id="l", generation=1, campaign="c"),
    )
    async with App("memory://") as app:
        await app.send_many("orders", [message], max_attempts=9)
        (found,) = await received(app)

    assert found.headers == (("tenant", b"eu"), (MAX_ATTEMPTS, b"3"))
    assert found.lineage is None


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ((b"x", {"colour": "red"}), "'colour' is not an option of a message: use id, key"),
        ((b"x", {"delay": 3}), "delay= is an option of the whole send_many"),
        ((b"x", {"at": NOW}), "at= is an option of the whole send_many"),
        ((b"x", {"max_attempts": 0}), "from 1 to 1000, got 0"),
        ((b"x", {"key": 3}), "key=3 of a message is of type int"),
        ((b"x", {"headers": {"dlq-id": "lie"}}), "reserved"),
        (a_message(body="text"), "is of type str: a Message takes bytes"),
        (a_message(sent_at=datetime(2026, 1, 1)), "must be a datetime with a time zone"),  # noqa: DTZ001
        (a_message(expires_at=3), "expires_at=3"),
        (a_message(key=3), "key=3 of a message is of type int"),
        (object(), "a body of type object"),
    ],
)
async def test_many_are_all_sent_or_none(item: object, text: str) -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match=text):
            await app.send_many("orders", [b"fine", item, b"fine too"])

        assert await (await app.engine()).broker.queues() == []


@pytest.mark.parametrize("limit", [0, -1, 1001, True, 1.5, "3"])
async def test_a_limit_out_of_range_is_refused(limit: Any) -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match="must be a whole number from 1 to 1000, got"):
            await app.send("orders", b"x", max_attempts=limit)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"at": datetime(2026, 1, 1)}, "at=2026-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
        ({"at": "tomorrow"}, "at='tomorrow' is not a time: use a datetime"),
        ({"at": NOW, "delay": 3.0}, "delay= and at= cannot be combined"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, "at must be a number of seconds, at most"),
        ({"delay": timedelta.max}, "delay must be a number of seconds, at most"),
    ],
)
@pytest.mark.parametrize("many", [False, True])
async def test_times_that_cannot_be_kept_are_refused(given: Any, text: str, many: bool) -> None:
    async with App("memory://") as app:
        sending = (
            app.send_many("orders", [b"x"], **given) if many else app.send("orders", b"x", **given)
        )
        with pytest.raises(ConfigError, match=text):
            await sending


async def test_messages_become_due_at_a_time(tmp_path: Path) -> None:
    async with App(f"sqlite:///{tmp_path}/a.db") as app:
        await app.send("orders", b"past", at=datetime.now(UTC) - timedelta(days=9))
        await app.send("orders", b"later", at=datetime.now(UTC) + timedelta(hours=1))
        await app.send("orders", b"delayed", delay=timedelta(hours=1))
        await app.send("orders", b"expires", expires_in=timedelta(hours=1))
        found = await received(app)
        (queue,) = await (await app.engine()).broker.queues()

    assert [one.body for one in found] == [b"past", b"expires"]
    assert found[1].expires_at is not None
    assert queue.delayed == 2


def test_a_sync_app_sends_the_same(tmp_path: Path) -> None:
    with SyncApp(f"sqlite:///{tmp_path}/a.db") as app:
        app.send("orders", b"a", max_attempts=2, delay=timedelta(0))
        app.send_many("orders", [b"b", (b"c", {"key": "k"})], max_attempts=3)
        found = app.call(received(app.app))

    limits = [dict(one.headers)[MAX_ATTEMPTS] for one in found]
    assert limits == [b"2", b"3", b"3"]


# Hooks.


async def test_hooks_run_around_the_work() -> None:
    calls: list[str] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        calls.append("open")
        yield
        calls.append("close")

    app = App("memory://", lifespan=lifespan)

    @app.on_startup
    def first() -> None:
        calls.append("first")

    @app.on_startup
    async def second() -> None:
        calls.append("second")

    @app.on_shutdown
    async def last() -> None:
        calls.append("last")

    @app.on_shutdown
    def before_last() -> None:
        calls.append("before last")

    @app.handler("orders")
    async def handle(body: bytes) -> None:
        calls.append("handler")

    async with app:
        await handle.send(b"x")
        assert calls == []
        await worked(app, lambda: "handler" in calls)
    assert calls == ["open", "first", "second", "handler", "before last", "last", "close"]


async def test_a_failing_start_up_hook_takes_no_message() -> None:
    calls: list[str] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        try:
            yield
        finally:
            calls.append("closed")

    app = App("memory://", lifespan=lifespan)

    @app.on_startup
    async def connect() -> None:
        raise OSError("no route to the bank")

    @app.on_shutdown
    async def disconnect() -> None:
        calls.append("disconnected")

    @app.handler("orders")
    async def handle(body: bytes) -> None:
        calls.append("handled")

    async with app:
        await handle.send(b"x")
        with pytest.raises(
            ConfigError,
            match=r"start-up hook .*connect failed with OSError: no route to the bank: no message",
        ):
            await asyncio.wait_for(app.work(asyncio.Event()), 10)
        (found,) = await received(app)

    assert calls == ["closed"]
    assert found.body == b"x"


async def test_every_shutdown_hook_runs_even_if_one_fails() -> None:
    app = App("memory://")
    calls: list[str] = []

    @app.on_shutdown
    async def first() -> None:
        calls.append("first")

    @app.on_shutdown
    async def second() -> None:
        raise ValueError("oh")

    @app.handler("orders")
    async def handle(body: bytes) -> None: ...

    stop = asyncio.Event()
    stop.set()
    async with app:
        with pytest.raises(ConfigError, match=r"shutdown hook .*second failed with ValueError: oh"):
            await app.work(stop)
    assert calls == ["first"]


def test_hooks_that_cannot_be_called_are_refused() -> None:
    app = App("memory://")

    def needs(connection: object) -> None: ...

    for register in (app.on_startup, app.on_shutdown):
        with pytest.raises(ConfigError, match="needs without arguments: remove its parameters"):
            register(needs)  # type: ignore[type-var]
        with pytest.raises(ConfigError, match="takes a function, got 3"):
            register(3)  # type: ignore[type-var]


async def test_a_lifespan_must_be_a_context_manager() -> None:
    async def generator(app: App) -> AsyncIterator[None]:
        yield

    with pytest.raises(ConfigError, match="asynccontextmanager"):
        App("memory://", lifespan=generator)  # type: ignore[arg-type]

    app = App("memory://", lifespan=lambda app: None)  # type: ignore[arg-type,return-value]
    app.handler("orders")(print_body)
    async with app:
        with pytest.raises(ConfigError, match="no async context manager: decorate it"):
            await app.work(asyncio.Event())


def print_body(body: bytes) -> None:
    print(body)


# Working some of the mailboxes.


async def test_only_the_mailboxes_that_are_named_are_worked() -> None:
    app = App("memory://")
    seen: list[str] = []
    for mailbox in ("orders", "mails", "bills"):

        async def handle(body: str) -> None:
            seen.append(body)

        app.handler(mailbox)(handle)
    async with app:
        for mailbox in ("bills", "mails", "orders"):
            await app.send(mailbox, mailbox)
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop, only=["orders", "mails"]))
        await eventually(lambda: len(seen) == 2)
        stop.set()
        assert await working == 0
        assert [one.body for one in await received(app, "bills")] == [b"bills"]
    assert sorted(seen) == ["mails", "orders"]


@pytest.mark.parametrize(
    ("only", "text"),
    [
        (["orders", "mials"], r"no handler is registered for mials: .*\(mails, orders\)"),
        ("orders", "must be a list of mailboxes"),
        ([], "must be a list of mailboxes"),
    ],
)
async def test_mailboxes_without_a_handler_cannot_be_worked(only: Any, text: str) -> None:
    app = App("memory://")
    app.handler("orders")(print_body)
    app.letter_handler("mails")(print_body)
    async with app:
        with pytest.raises(ConfigError, match=text):
            await app.work(asyncio.Event(), only=only)
