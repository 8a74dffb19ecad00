"""What a worker does with deliveries, on the memory engine."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deadletter import (
    Context,
    DLQPolicy,
    ErrorBudgetPolicy,
    Fixed,
    GiveUp,
    Ignore,
    LogicalFailure,
    Message,
    NoBackoff,
    RetryLater,
    Trouble,
)
from deadletter.core.errors import ConfigError
from deadletter.core.events import Buried, Retried, Succeeded
from deadletter.core.failure import Reason
from rig import Rig, fails

QUICK = DLQPolicy(max_attempts=3, backoff=NoBackoff())


async def test_a_handled_message_is_gone() -> None:
    rig, seen = Rig(), []

    @rig.app.handler("orders")
    async def handle(body: str) -> None:
        seen.append(body)

    async with rig.working():
        await rig.app.send("orders", "one")
        await rig.drained("orders")

        assert seen == ["one"]
        assert await rig.letters() == []
        assert [e.fate for e in rig.seen(Succeeded)] == ["handled"]


async def test_a_failing_message_is_retried_and_then_succeeds() -> None:
    rig = Rig()
    step = fails(2, lambda: ConnectionError("refused"))

    @rig.app.handler("orders", policy=QUICK)
    async def handle(body: bytes) -> None:
        step()

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")

        assert [e.attempt for e in rig.seen(Retried)] == [1, 2]
        assert [e.attempt for e in rig.seen(Succeeded)] == [3]
        assert await rig.letters() == []


async def test_an_exhausted_message_becomes_a_letter_with_its_whole_story() -> None:
    rig = Rig(version="1.4")

    @rig.app.handler("orders", policy=QUICK)
    async def handle(body: bytes) -> None:
        raise ValueError(f"no good: {body!r}")

    async with rig.working():
        await rig.app.send("orders", b"\x00\xff", id="o-1", headers={"a": b"\xfe"})
        await rig.drained("orders")

        (letter,) = await rig.letters()
        assert letter.message.body == b"\x00\xff"
        assert letter.message.headers == (("a", b"\xfe"),)
        assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED
        assert letter.head.error_type == "ValueError"
        assert letter.head.attempts == 3
        assert letter.head.version == "1.4"
        assert [a.number for a in letter.story()] == [1, 2, 3]
        assert all("no good" in a.text for a in letter.story())
        assert "handle" in letter.story()[0].stack
        (event,) = rig.seen(Buried)
        assert event.letter_id == letter.id
        assert (await rig.queue("orders")).tally["buried"] == 1


async def test_a_malformed_body_is_buried_without_a_retry() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=QUICK)
    async def handle(body: dict[str, int]) -> None:
        raise AssertionError("never run")

    async with rig.working():
        await rig.app.send("orders", b'{"a": ')
        await rig.drained("orders")

        (letter,) = await rig.letters()
        assert letter.head.reason is Reason.UNDECODABLE
        assert letter.head.trouble is Trouble.MALFORMED
        assert letter.head.attempts == 1


@pytest.mark.parametrize(
    ("signal", "fate"), [(Ignore("not ours"), "ignored"), (LogicalFailure("said no"), "continued")]
)
async def test_signals_decide_the_fate(signal: Exception, fate: str) -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=QUICK)
    async def handle(body: bytes) -> None:
        raise signal

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")

        assert await rig.letters() == []
        assert (await rig.queue("orders")).tally[fate] == 1


async def test_give_up_buries_at_once() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=QUICK)
    async def handle(body: bytes) -> None:
        raise GiveUp("customer is gone")

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")

        (letter,) = await rig.letters()
        assert letter.head.reason is Reason.REJECTED
        assert letter.head.reason_text == "customer is gone"
        assert letter.head.attempts == 1


async def test_retry_later_costs_no_attempt() -> None:
    rig = Rig()
    step = fails(6, lambda: RetryLater(0.0))

    @rig.app.handler("orders", policy=QUICK)
    async def handle(body: bytes) -> None:
        step()

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")

        assert await rig.letters() == []
        assert len(rig.seen(Succeeded)) == 1


class Odd(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        StopIteration(),
        StopAsyncIteration(),
        Odd("odd"),
        BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError("x")]),
    ],
)
@pytest.mark.parametrize("on_thread", [False, True])
async def test_any_error_of_a_handler_fails_its_message(
    error: BaseException, *, on_thread: bool
) -> None:
    rig = Rig()

    async def on_loop(body: str) -> None:
        if body == "bad":
            raise error

    def in_thread(body: str) -> None:
        if body == "bad":
            raise error

    rig.app.handler("orders", policy=QUICK)(in_thread if on_thread else on_loop)

    async with rig.working():
        await rig.app.send("orders", "bad")
        await rig.drained("orders")
        await rig.app.send("orders", "good")
        await rig.drained("orders")

        assert len(await rig.letters()) == 1
        assert len(rig.seen(Succeeded)) == 1


async def test_an_error_budget_gives_up_early() -> None:
    rig = Rig()
    policy = ErrorBudgetPolicy(max_attempts=100, backoff=NoBackoff(), error_budget=0.5)

    @rig.app.handler("orders", policy=policy, slots=1)
    async def handle(body: bytes) -> None:
        raise ValueError("always")

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")

        (letter,) = await rig.letters()
        assert 10 < letter.head.attempts < 100
        assert "budget" in letter.head.reason_text


async def test_an_expired_message_is_buried_and_not_run() -> None:
    rig, runs = Rig(), []

    @rig.app.handler("orders")
    async def handle(body: bytes) -> None:
        runs.append(body)

    await rig.app.send("orders", b"late", expires_in=0.01)
    await asyncio.sleep(0.02)
    async with rig.working():
        await rig.drained("orders")

        (letter,) = await rig.letters()
        assert letter.head.reason is Reason.EXPIRED
        assert runs == []


async def test_a_message_too_old_for_its_policy_is_buried_and_not_run() -> None:
    rig, runs = Rig(), []

    @rig.app.handler("orders", policy=DLQPolicy(expire_after=60))
    async def handle(body: bytes) -> None:
        runs.append(body)

    now = datetime.now(UTC)
    old = Message(id="old", body=b"old", sent_at=now - timedelta(seconds=61))
    new = Message(id="new", body=b"new", sent_at=now)
    await (await rig.app.engine()).broker.sink("orders").send([old, new])
    async with rig.working():
        await rig.drained("orders")

        (letter,) = await rig.letters()
        assert (letter.head.message_id, letter.head.reason) == ("old", Reason.EXPIRED)
        assert runs == [b"new"]


async def test_unlimited_retries_end_at_the_maximum_age() -> None:
    rig = Rig()
    forever = DLQPolicy(
        exclude_errors=frozenset({ValueError}), backoff=Fixed(0.01), expire_after=0.2
    )

    @rig.app.handler("orders", policy=forever)
    async def handle(body: bytes) -> None:
        raise ValueError("always")

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")

        (letter,) = await rig.letters()
        assert letter.head.reason is Reason.EXPIRED
        assert "always" in letter.history


async def test_a_handler_may_ask_for_its_context() -> None:
    rig, seen = Rig(), []

    @rig.app.handler("orders")
    async def handle(body: bytes, context: Context) -> None:
        context.beat()
        seen.append((context.attempt, context.message_id))

    async with rig.working():
        await rig.app.send("orders", b"x", id="o-9")
        await rig.drained("orders")

    assert seen == [(1, "o-9")]


async def test_a_policy_that_raises_does_not_lose_the_message() -> None:
    class Broken(DLQPolicy, frozen=True, kw_only=True):
        def should_dead_letter(self, delivery: Any, error: Any) -> bool:
            raise RuntimeError("bug in the policy")

    rig = Rig()
    step = fails(1, lambda: ValueError("no"))

    @rig.app.handler("orders", policy=Broken(backoff=NoBackoff()))
    async def handle(body: bytes) -> None:
        step()

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")

        assert len(rig.seen(Succeeded)) == 1


async def test_two_handlers_for_one_mailbox_are_refused() -> None:
    rig = Rig()
    rig.app.handler("orders")(lambda body: None)

    with pytest.raises(ConfigError, match="has a handler already"):
        rig.app.handler("orders")(lambda body: None)


async def test_an_app_without_handlers_says_what_is_missing() -> None:
    rig = Rig()

    with pytest.raises(ConfigError, match="the App has no handler: register one"):
        await rig.app.work()
    await rig.app.close()
