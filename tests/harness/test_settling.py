"""`settled`: everything that is left to do is done, at once, or listed."""

import asyncio
import os
import time
from datetime import timedelta

import pytest

from deadletter import App, Context, DLQPolicy, Fixed, GiveUp, Message, NoBackoff, State
from deadletter.core.errors import ConfigError
from deadletter.core.events import BrakeOpened, Buried
from deadletter.harness import NotSettled

NOWHERE = "postgresql://nobody@192.0.2.1/none"  # an address that nobody has


async def test_retries_over_hours_settle_at_once_and_at_their_times() -> None:
    app = App(NOWHERE)
    times = []

    @app.handler("reports", max_attempts=4, backoff=Fixed(1800))
    async def report(name: str) -> None:
        times.append(t.clock.monotonic())
        raise TimeoutError("still closed")

    began = time.monotonic()
    async with app.testing() as t:
        await t.send("reports", "daily", id="r-1")
        await t.settled()
        letter = t.letter("reports")

    assert times == [0, 1800, 3600, 5400]
    assert (letter.head.message_id, letter.head.attempts) == ("r-1", 4)
    assert letter.head.dead_at - letter.head.first_failed_at == timedelta(hours=1, minutes=30)
    assert time.monotonic() - began < 5


async def test_policies_middleware_and_classifiers_are_the_real_ones() -> None:
    seen = []

    def noting(handler):  # type: ignore[no-untyped-def]
        async def run(delivery):  # type: ignore[no-untyped-def]
            seen.append(delivery.attempt)
            return await handler(delivery)

        return run

    app = App(NOWHERE, middleware=[noting], version="1.7")

    @app.handler("orders", policy=DLQPolicy(max_attempts=3, backoff=NoBackoff()))
    async def charge(order: dict) -> None:  # type: ignore[type-arg]
        if "id" not in order:
            raise GiveUp("no id")
        raise TimeoutError

    async with app.testing() as t:
        await t.send("orders", {"id": 1}, id="retried")
        await t.send("orders", {}, id="refused")
        await t.send("orders", b"not JSON", id="malformed")
        await t.settled()
        attempts = {one.head.message_id: one.head.attempts for one in t.letters("orders")}
        version = t.letters()[0].head.version

    assert attempts == {"retried": 3, "refused": 1, "malformed": 1}
    assert sorted(seen) == [1, 1, 1, 2, 3]
    assert version == "1.7"


async def test_a_key_is_handled_once_until_the_ledger_forgets_it() -> None:
    app = App(NOWHERE)
    handled = []

    @app.handler("payments", idempotent=True, ledger_ttl=3600)
    async def pay(name: str) -> None:
        handled.append(name)

    async with app.testing() as t:
        for _ in range(2):
            await t.send("payments", "p", idempotency_key="p-1")
            await t.settled()
        t.clock.advance(timedelta(hours=2))
        await t.send("payments", "p", idempotency_key="p-1")
        await t.settled()

    assert handled == ["p", "p"]


async def test_delays_are_waited_for_and_patience_ends_before_them() -> None:
    app = App(NOWHERE)
    times = []

    @app.handler("reminders")
    async def remind(name: str) -> None:
        times.append(t.clock.monotonic())

    async with app.testing() as t:
        await t.send("reminders", "soon", delay=3600)
        await t.send("reminders", "late", delay=timedelta(days=30))
        await t.settled(patience=60)
        before = list(times)
        await t.settled()
        left = [message.body for message in t.messages("reminders")]
        await t.settled(patience=timedelta(days=31))

    assert before == []
    assert left == [b"late"]
    assert times == [3600, 30 * 86400]


async def test_what_is_retried_for_ever_is_listed() -> None:
    app = App(NOWHERE)

    @app.handler("orders", max_attempts=0, backoff=Fixed(7200), brake=None)
    async def charge(name: str) -> None:
        raise ConnectionError(f"no \x1b[31manswer for {name}")

    async with app.testing() as t:
        await t.send("orders", "a", id="o-1")
        with pytest.raises(NotSettled, match="still to be retried after a day") as left:
            await t.settled()
        await t.settled(patience=0)

    lines = str(left.value).splitlines()
    assert lines[0].startswith("1 message left")
    assert lines[2].startswith(
        "orders   o-1      retry in 2 h  13        ConnectionError: no \\x1b"
    )
    assert "\x1b" not in str(left.value)


async def test_a_handler_that_hangs_is_listed_as_running() -> None:
    app = App(NOWHERE)

    @app.handler("orders")
    async def charge(name: str) -> None:
        await asyncio.Event().wait()

    async with app.testing() as t:
        await t.send("orders", "a", id="o-1")
        with pytest.raises(NotSettled, match=r"longer than 0\.1 real seconds") as left:
            await t.settled(within=0.1)

    assert "o-1      running" in str(left.value)


async def test_a_brake_that_holds_messages_is_named_and_can_be_left_out() -> None:
    app = App(NOWHERE)

    @app.handler("orders", max_attempts=2, backoff=NoBackoff())
    async def charge(name: str) -> None:
        raise KeyError("vat_rate")

    async with app.testing() as t:
        for number in range(30):
            await t.send("orders", "a", id=f"o-{number}")
        with pytest.raises(NotSettled, match=r"worker orders: .*KeyError") as left:
            await t.settled()
        opened = [event for event in t.events if isinstance(event, BrakeOpened)]
    async with app.testing(brake=False) as t:
        for number in range(30):
            await t.send("orders", "a", id=f"o-{number}")
        await t.settled()
        letters = t.letters()

    assert len(opened) == 1
    assert "30 messages left: a brake holds them back" in str(left.value)
    assert "app.testing(brake=False)" in str(left.value)
    assert len(letters) == 30


async def test_an_outage_that_ends_is_waited_out() -> None:
    app = App(NOWHERE)
    calls = 0

    @app.handler("orders", max_attempts=3, backoff=Fixed(1))
    async def charge(name: str) -> None:
        nonlocal calls
        calls += 1
        if calls < 20:
            raise ConnectionError("down")

    async with app.testing() as t:
        for number in range(20):
            await t.send("orders", "a", id=f"o-{number}")
        await t.settled()
        assert any(isinstance(event, BrakeOpened) for event in t.events)
        t.no_letters()


async def test_a_time_limit_ends_with_the_clock() -> None:
    app = App(NOWHERE)
    started = asyncio.Event()

    @app.handler("orders", max_attempts=1, time_limit=900)
    async def charge(name: str) -> None:
        started.set()
        await asyncio.sleep(10_000)

    async with app.testing() as t:
        await t.send("orders", "a")
        await started.wait()
        t.clock.advance(901)
        await t.settled()
        assert t.letter().head.error_name == "TimeLimitExceeded"


async def test_time_passes_while_a_handler_waits_and_only_then() -> None:
    app = App(NOWHERE)
    took = []

    @app.handler("orders")
    async def charge(name: str) -> None:
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(0.05)
        took.append(asyncio.get_running_loop().time() - before)

    async with app.testing() as t:
        await asyncio.sleep(0.02)
        assert t.clock.monotonic() == 0
        real = time.monotonic()
        await t.send("orders", "a")
        await t.settled()
        real = time.monotonic() - real
        assert took == [0.05]
        assert t.clock.monotonic() == 0.05

    assert real >= 0.05


async def test_timeouts_of_the_test_itself_run_in_real_time() -> None:
    app = App(NOWHERE)

    @app.handler("orders", max_attempts=3, backoff=Fixed(3600))
    async def charge(name: str) -> None:
        raise TimeoutError

    async with app.testing() as t, asyncio.timeout(60):
        await t.send("orders", "a")
        await t.settled()
        assert t.clock.monotonic() == 7200


async def test_messages_that_expire_become_letters() -> None:
    app = App(NOWHERE)

    @app.handler("orders", max_attempts=0, backoff=Fixed(600), brake=None)
    async def charge(name: str) -> None:
        raise TimeoutError

    async with app.testing() as t:
        await t.send("orders", "a", expires_in=1500)
        await t.settled()
        assert t.letter().head.reason == "expired"


async def test_letters_are_replayed_and_settle() -> None:
    app = App(NOWHERE)
    broken = True

    @app.handler("orders", max_attempts=1, brake=None)
    async def charge(name: str) -> None:
        if broken:
            raise TimeoutError

    async with app.testing() as t:
        for number in range(3):
            await t.send("orders", "a", id=f"o-{number}")
        await t.settled()
        again = await t.replay("message:o-1")
        failed = t.letters()
        broken = False
        replay = await t.replay("source:orders")
        states = [letter.head.state for letter in t.letters()]

    assert (again.state, failed[-1].head.replays) == ("done", 1)
    assert replay.state == "done"
    assert states == [State.REPLAYED] * 3


async def test_handlers_of_letters_run_too() -> None:
    app = App(NOWHERE)
    seen = []

    @app.handler("orders", max_attempts=1, dead_queue="orders-dlq")
    async def charge(name: str) -> None:
        raise TimeoutError("closed")

    @app.letter_handler("orders-dlq")
    async def tell(letter) -> None:  # type: ignore[no-untyped-def]
        seen.append((letter.head.source, letter.head.error_text))
        await app.send("mails", letter.head.message_id)

    async with app.testing() as t:
        await t.send("orders", "a", id="o-1")
        await t.settled()
        assert [(one.mailbox, one.handler) for one in t.sent] == [("mails", "orders-dlq")]
        assert t.messages("orders-dlq") == []

    assert seen == [("orders", "closed")]


async def test_sync_and_isolated_handlers_run_in_this_process() -> None:
    app = App(NOWHERE)
    app.handler("isolated", isolation="process", max_attempts=1)(isolated)

    async with app.testing() as t:
        await t.send("isolated", "a")
        await t.settled()
        assert t.letter().head.error_text == f"in process {os.getpid()}"


def isolated(name: str, context: Context) -> None:
    raise GiveUp(f"in process {os.getpid()}")


async def test_replies_and_bad_news_are_there_to_read() -> None:
    app = App(NOWHERE)

    @app.handler("sums")
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    async with app.testing() as t:
        await t.send("sums", [1, 2], reply_to="answers")
        await t.settled()
        (answer,) = t.messages("answers")

    assert isinstance(answer, Message)
    assert answer.body == b"3"


async def test_chance_and_ids_repeat() -> None:
    app = App(NOWHERE)

    @app.handler("orders", max_attempts=3)
    async def charge(name: str) -> None:
        raise TimeoutError

    async def run(seed: int) -> tuple[str, float]:
        async with app.testing(seed=seed) as t:
            id_ = await t.send("orders", "a")
            await t.settled()
            return id_, t.clock.monotonic()

    assert await run(1) == await run(1)
    assert await run(1) != await run(2)


async def test_what_was_expected_and_what_there_is() -> None:
    app = App(NOWHERE)

    @app.handler("orders", max_attempts=1)
    async def charge(name: str) -> None:
        raise KeyError("vat_rate")

    async with app.testing() as t:
        with pytest.raises(AssertionError, match="expected one letter in 'orders', found 0"):
            t.letter("orders")
        await t.send("orders", "a", id="o-1")
        await t.settled()
        t.no_letters("mails")
        with pytest.raises(AssertionError, match="o-1  1 attempt  KeyError: 'vat_rate'") as found:
            t.no_letters()
        assert found.value.__cause__ is t.raised[0].error
        assert [event.message_id for event in t.events if isinstance(event, Buried)] == ["o-1"]


async def test_a_failed_test_is_told_of_the_dead_letters() -> None:
    app = App(NOWHERE)

    @app.handler("orders", max_attempts=1)
    async def charge(name: str) -> None:
        raise KeyError("vat_rate")

    async def failing() -> None:
        async with app.testing() as t:
            await t.send("orders", "a", id="o-1")
            await t.settled()
            assert t.sent != []

    with pytest.raises(AssertionError) as failed:
        await failing()

    assert "orders  o-1  1 attempt  KeyError: 'vat_rate'" in "\n".join(failed.value.__notes__)


async def test_start_up_hooks_run_and_their_errors_are_raised() -> None:
    app = App(NOWHERE)
    steps = []
    app.on_startup(lambda: steps.append("up"))
    app.on_shutdown(lambda: steps.append("down"))

    @app.handler("orders")
    async def charge(name: str) -> None:
        steps.append(name)

    async with app.testing() as t:
        await t.send("orders", "a")
        await t.settled()

    assert steps == ["up", "a", "down"]

    @app.on_startup
    def fail() -> None:
        raise ValueError("no settings")

    with pytest.raises(ConfigError, match="no settings"):
        async with app.testing():
            pass
