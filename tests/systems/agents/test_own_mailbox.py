"""Loops, consumers and replays with mailboxes that only fulfil the protocol."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
import structlog

from agents import (
    Backend,
    DeadLetter,
    DLQConsumer,
    DLQPolicy,
    EvalLoop,
    EvalRequest,
    EvalResult,
    FunctionAdapter,
    InMemoryMailbox,
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    RegistryResolver,
    Sample,
    Score,
    Session,
)
from agents.errors import InvalidParameterError, RateLimitError, ValidationError
from agents.health import health_check
from agents.replay import replay_handler, replay_with_dedup, selective_replay
from agents.telemetry import Telemetry
from deadletter.core.events import Retried
from systems.agents.own_mailbox import OwnMailbox
from systems.agents.rig import AT_ONCE, Rig, failing, running, until, upper


@dataclass(frozen=True)
class Odd:
    """A request that JSON cannot hold."""

    run: Callable[[], str]


class Desk:
    """The mailboxes of a loop, and what they were asked to do."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.requests = OwnMailbox("requests", self.calls)
        self.dead = OwnMailbox("requests-dlq", self.calls)
        self.answers = OwnMailbox("answers", self.calls)

    def loop(self, adapter: Any, **options: Any) -> MainLoop[Any, Any]:
        policy: DLQPolicy[Any, Any] = DLQPolicy(
            mailbox=self.dead, **{"max_delivery_count": 5, **options}
        )
        return MainLoop(
            adapter=FunctionAdapter(adapter), requests=self.requests, config=AT_ONCE, dlq=policy
        )

    def ask(self, request: Any) -> MainLoopRequest[Any]:
        body = MainLoopRequest(request)
        self.requests.send(body, reply_to=self.answers)
        return body

    def answer(self) -> MainLoopResult[Any]:
        (message,) = self.answers.receive(wait_time_seconds=15)
        message.acknowledge()
        result: MainLoopResult[Any] = message.body
        return result

    def letter(self) -> DeadLetter[Any]:
        (message,) = self.dead.receive(wait_time_seconds=15)
        message.nack()
        letter: DeadLetter[Any] = message.body
        return letter


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_request_is_answered_and_then_acknowledged(desk: Desk) -> None:
    with running(desk.loop(upper)):
        asked = desk.ask("hello")
        assert desk.answer() == MainLoopResult(asked.request_id, "HELLO")
        until(lambda: desk.requests.approximate_count() == 0)

    replied = desk.calls.index("send to answers")
    assert replied < desk.calls.index("acknowledge in requests")
    assert desk.dead.approximate_count() == 0


def test_the_fifth_failure_goes_to_the_dead_letter_mailbox(desk: Desk) -> None:
    with running(desk.loop(failing(ValidationError("no sense")))):
        asked = desk.ask("hello")
        letter = desk.letter()
        result = desk.answer()
        until(lambda: desk.requests.approximate_count() == 0)

    assert letter.body is asked  # the object itself
    assert letter.source_mailbox == "requests"
    assert (letter.delivery_count, letter.request_id) == (5, asked.request_id)
    assert (letter.last_error, letter.reply_to) == ("no sense", "answers")
    assert letter.last_error_type == "agents.errors.ValidationError"
    assert letter.first_received_at <= letter.dead_lettered_at
    assert result.error == "Dead-lettered after 5 attempts: no sense"
    assert desk.calls.count("nack in requests for 0") == 4
    assert desk.calls[-1] != "send to requests-dlq"
    dead = desk.calls.index("send to requests-dlq")
    assert dead < desk.calls.index("acknowledge in requests")


def test_the_backoff_of_a_retry_is_the_visibility_timeout_of_its_nack() -> None:
    desk = Desk()
    loop: MainLoop[str, str] = MainLoop(
        adapter=FunctionAdapter(failing(LookupError("no"))),
        requests=desk.requests,
        dlq=DLQPolicy(mailbox=desk.dead, max_delivery_count=3),
    )
    with running(loop):
        desk.ask("hello")
        for number in (1, 2):
            until(lambda n=number: f"nack in requests for {60 * n}" in desk.calls)  # type: ignore[misc]
            desk.requests.pass_time()
        assert desk.letter().delivery_count == 3


def test_listed_errors_die_at_once_and_excluded_ones_never(desk: Desk) -> None:
    def adapter(prompt: str, session: Session) -> str:
        if prompt == "busy" and session.delivery_count < 8:
            raise RateLimitError("slower")
        if prompt == "invalid":
            raise ValidationError("no sense")
        return "done"

    with running(
        desk.loop(
            adapter,
            include_errors=frozenset({ValidationError}),
            exclude_errors=frozenset({RateLimitError}),
        )
    ):
        desk.ask("busy")
        assert desk.answer().output == "done"
        desk.ask("invalid")
        assert desk.letter().delivery_count == 1


def test_bodies_need_not_be_json(desk: Desk) -> None:
    class Running(MainLoop[Odd, str]):
        def prepare(self, request: Odd) -> Any:
            return request.run()

    loop = Running(
        adapter=FunctionAdapter(upper),
        requests=desk.requests,
        config=AT_ONCE,
        dlq=DLQPolicy(mailbox=desk.dead, max_delivery_count=1),
    )

    def fail() -> str:
        raise LookupError("no")

    with running(loop):
        desk.ask(Odd(lambda: "hello"))
        assert desk.answer().output == "HELLO"
        asked = desk.ask(Odd(fail))
        assert desk.letter().body is asked


def test_a_dead_letter_mailbox_that_is_away_holds_the_request(desk: Desk) -> None:
    send, is_away = desk.dead.send, True

    def refusing(body: Any, *, reply_to: Any = None) -> str:
        if is_away:
            raise ConnectionError("nobody is there")
        return send(body, reply_to=reply_to)

    desk.dead.send = refusing  # type: ignore[method-assign]
    events: list[Any] = []
    with Backend("memory://", observe=events.append) as backend:
        loop: MainLoop[str, str] = MainLoop(
            adapter=FunctionAdapter(failing(LookupError("no"))),
            requests=desk.requests,
            config=MainLoopConfig(backend=backend),
            dlq=DLQPolicy(mailbox=desk.dead, max_delivery_count=1),
        )
        with running(loop):
            desk.ask("hello")
            until(lambda: [e for e in events if "nobody is there" in getattr(e, "text", "")])
            assert desk.requests.approximate_count() == 1
            assert desk.answers.approximate_count() == 0
            is_away = False
            assert desk.letter().body.request == "hello"
            assert desk.answer().error == "Dead-lettered after 1 attempts: no"


def test_a_reply_that_fails_does_not_hold_up_the_dead_letter(desk: Desk) -> None:
    def refuse(body: Any, *, reply_to: Any = None) -> str:
        raise ConnectionError("nobody is there")

    desk.answers.send = refuse  # type: ignore[method-assign]
    with running(desk.loop(failing(LookupError("no")), max_delivery_count=1)):
        desk.ask("hello")
        assert desk.letter().body.request == "hello"
        until(lambda: desk.requests.approximate_count() == 0)


def test_an_answer_that_cannot_be_sent_is_retried(desk: Desk) -> None:
    send, failures = desk.answers.send, [1, 1]

    def flaky(body: Any, *, reply_to: Any = None) -> str:
        if failures:
            failures.pop()
            raise ConnectionError("nobody is there")
        return send(body, reply_to=reply_to)

    desk.answers.send = flaky  # type: ignore[method-assign]
    with running(desk.loop(upper)):
        desk.ask("hello")
        assert desk.answer().output == "HELLO"


def test_samples_of_an_eval_loop(desk: Desk) -> None:
    evals, dead = OwnMailbox("eval-requests"), OwnMailbox("eval-requests-dlq")
    scores = OwnMailbox("scores")

    def judge(output: str, expected: str) -> Score:
        if expected == "?":
            raise LookupError("nothing to compare with")
        return Score(1.0, passed=output == expected)

    loop: EvalLoop[Any, Any, Any] = EvalLoop(
        loop=desk.loop(upper),
        evaluator=judge,
        requests=evals,
        dlq=DLQPolicy(mailbox=dead, max_delivery_count=2),
    )
    with running(loop):
        evals.send(EvalRequest(Sample("s-1", "a", "A")), reply_to=scores)
        (message,) = scores.receive(wait_time_seconds=15)
        result: EvalResult = message.body
        assert result.score == Score(1.0, passed=True)
        evals.send(EvalRequest(Sample("s-2", "a", "?")))
        (message,) = dead.receive(wait_time_seconds=15)
    assert (message.body.body.sample.id, message.body.delivery_count) == ("s-2", 2)


def died(desk: Desk, **errors: Exception) -> None:
    def adapter(prompt: str, session: Session) -> str:
        raise errors[prompt]

    before = desk.dead.approximate_count()
    with running(desk.loop(adapter, max_delivery_count=1)):
        for name in errors:
            desk.ask(name)
        until(lambda: desk.requests.approximate_count() == 0)
    assert desk.dead.approximate_count() == before + len(errors)
    for _ in errors:
        desk.answer()


def test_a_consumer_acknowledges_what_is_handled_and_keeps_the_rest_for_an_hour(desk: Desk) -> None:
    died(desk, good=LookupError("no"), bad=LookupError("no"))
    seen: list[DeadLetter[Any]] = []

    def handle(letter: DeadLetter[Any]) -> str:
        seen.append(letter)
        if letter.body.request == "bad":
            raise ConnectionError("nobody is there")
        return "alert"

    DLQConsumer(mailbox=desk.dead, handler=handle).run(max_iterations=1, wait_time_seconds=0)

    assert [letter.body.request for letter in seen] == ["good", "bad"]
    assert all(type(letter) is DeadLetter for letter in seen)
    assert desk.dead.approximate_count() == 1
    assert "nack in requests-dlq for 3600" in desk.calls
    assert desk.dead.visibility[-1] == 300


def test_a_consumer_runs_beside_its_loop_and_logs_what_it_does(desk: Desk) -> None:
    seen: list[DeadLetter[Any]] = []
    with Backend("memory://", observe=Telemetry()) as backend:
        loop: MainLoop[str, str] = MainLoop(
            adapter=FunctionAdapter(failing(LookupError("no"))),
            requests=desk.requests,
            config=MainLoopConfig(backend=backend),
            dlq=DLQPolicy(mailbox=desk.dead, max_delivery_count=1),
        )
        consumer: DLQConsumer[Any] = DLQConsumer(
            mailbox=desk.dead, handler=lambda letter: seen.append(letter) or "discard"
        )
        with structlog.testing.capture_logs() as lines, running(loop, consumer):
            asked = desk.ask("hello")
            until(lambda: desk.dead.approximate_count() == 0 and seen)
            until(lambda: [one for one in lines if one["event"] == "Processing dead letter"])

    (line,) = [one for one in lines if one["event"] == "Processing dead letter"]
    assert line["message_id"] == seen[0].message_id
    assert (line["request_id"], line["action"]) == (str(asked.request_id), "discard")


def test_dead_letters_are_logged_without_any_set_up(desk: Desk) -> None:
    def refuse(letter: DeadLetter[Any]) -> None:
        raise ConnectionError("nobody is there")

    with structlog.testing.capture_logs() as lines:
        died(desk, hello=ValidationError("no sense"))
        DLQConsumer(mailbox=desk.dead, handler=refuse).run(max_iterations=1, wait_time_seconds=0)

    (warning,) = [one for one in lines if one["event"] == "Message dead-lettered"]
    assert warning["log_level"] == "warning"
    assert warning["error_type"] == "agents.errors.ValidationError"
    (error,) = [one for one in lines if one["event"] == "DLQ handler failed"]
    assert (error["log_level"], error["error"]) == ("error", "nobody is there")
    assert error["message_id"] == warning["message_id"]


def test_replays_health_and_dedup(desk: Desk) -> None:
    died(desk, late=TimeoutError("slow"), wrong=LookupError("no"))
    resolver = RegistryResolver({"answers": desk.answers})
    assert health_check(desk.dead)["dlq"] == {"name": "requests-dlq", "depth": 2, "threshold": 100}

    count = selective_replay(
        desk.dead,
        desk.requests,
        predicate=lambda letter: "TimeoutError" in letter.last_error_type,
        reply_resolver=resolver,
    )

    assert count == 1
    assert "nack in requests-dlq for 0" in desk.calls
    with running(desk.loop(upper)):
        assert desk.answer().output == "LATE"
    handler = partial(replay_handler, source=desk.requests, reply_resolver=resolver)
    DLQConsumer(mailbox=desk.dead, handler=handler).run(max_iterations=1, wait_time_seconds=0)
    with running(desk.loop(upper)):
        assert desk.answer().output == "WRONG"
    assert desk.dead.approximate_count() == 0

    died(desk, again=LookupError("no"))
    seen = {uuid4()}
    letter = desk.letter()
    assert replay_with_dedup(letter, desk.requests, seen)
    assert not replay_with_dedup(letter, desk.requests, seen)
    assert desk.requests.approximate_count() == 1


def test_letters_are_kept_in_the_office_of_the_configured_backend(desk: Desk) -> None:
    events: list[Any] = []
    with Backend("memory://", observe=events.append) as backend:
        loop: MainLoop[str, str] = MainLoop(
            adapter=FunctionAdapter(failing(LookupError("no"))),
            requests=desk.requests,
            config=MainLoopConfig(backend=backend, backoff=AT_ONCE.backoff),
            dlq=DLQPolicy(mailbox=desk.dead, max_delivery_count=2),
        )
        with running(loop):
            desk.ask("hello")
            until(lambda: desk.requests.approximate_count() == 0)

        async def counted() -> Any:
            return await (await backend.letters()).counts()

        assert list(backend.call(counted())) == ["requests"]
    assert len([event for event in events if isinstance(event, Retried)]) == 1


def test_both_mailboxes_of_a_loop_are_of_one_kind(desk: Desk) -> None:
    other: InMemoryMailbox[Any, None] = InMemoryMailbox(name="requests-dlq")

    with pytest.raises(InvalidParameterError, match="same kind of mailbox"):
        MainLoop(
            adapter=FunctionAdapter(upper), requests=desk.requests, dlq=DLQPolicy(mailbox=other)
        )
    requests: InMemoryMailbox[Any, Any] = InMemoryMailbox(name="requests")
    with pytest.raises(InvalidParameterError, match="same backend"):
        MainLoop(
            adapter=FunctionAdapter(upper), requests=requests, dlq=DLQPolicy(mailbox=desk.dead)
        )


def test_loops_on_a_backend_and_others_run_in_one_group(desk: Desk, timed: Rig) -> None:
    seen: list[DeadLetter[Any]] = []
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=desk.dead, handler=seen.append)
    others = desk.loop(failing(LookupError("no")), max_delivery_count=1)
    with running(timed.loop(upper), others, consumer) as group:
        timed.ask("hello")
        desk.ask("hello")
        assert timed.answer().output == "HELLO"
        until(lambda: seen)
        assert group.backend is timed.backend

    assert [letter.head.message_id for letter in timed.kept()] == [seen[0].message_id]


def test_a_long_poll_does_not_hold_up_the_shutdown(desk: Desk) -> None:
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=desk.dead, handler=print)
    thread = threading.Thread(target=consumer.run, kwargs={"wait_time_seconds": 20})
    thread.start()
    until(lambda: desk.dead.visibility)  # it is polling

    began = time.monotonic()
    assert consumer.shutdown(timeout=10)
    thread.join(10)

    assert time.monotonic() - began < 10
    # The poll goes on in its thread: what it still gets is handed back.
    desk.dead.send("late")
    until(lambda: "nack in requests-dlq for 0" in desk.calls)
    assert desk.dead.approximate_count() == 1


def test_the_lease_of_a_long_request_is_extended_where_messages_can(desk: Desk) -> None:
    extended: list[int] = []

    class Extending(OwnMailbox):
        def receive(self, **asked: Any) -> Any:
            found = super().receive(**asked)
            for message in found:
                message.extend_visibility = extended.append  # type: ignore[attr-defined]
            return found

    may_end = threading.Event()

    def adapter(prompt: str, session: Session) -> str:
        may_end.wait(20)
        return prompt.upper()

    requests = Extending("requests")
    loop: MainLoop[str, str] = MainLoop(
        adapter=FunctionAdapter(adapter),
        requests=requests,
        config=MainLoopConfig(visibility_timeout=1),
    )
    with running(loop):
        requests.send(MainLoopRequest("hello"), reply_to=desk.answers)
        until(lambda: len(extended) >= 2)
        may_end.set()
        assert desk.answer().output == "HELLO"
    assert set(extended) == {1}


def test_a_message_whose_lease_has_ended_is_not_settled_twice(desk: Desk) -> None:
    class ReceiptHandleExpiredError(Exception):
        """The error of another package, by the name that the protocol gives it."""

    class Forgetting(OwnMailbox):
        def delete(self, entry: Any) -> None:
            super().delete(entry)
            raise ReceiptHandleExpiredError("too late")

    requests = Forgetting("requests")
    loop: MainLoop[str, str] = MainLoop(adapter=FunctionAdapter(upper), requests=requests)
    with running(loop):
        requests.send(MainLoopRequest("hello"), reply_to=desk.answers)
        assert desk.answer().output == "HELLO"
        requests.send(MainLoopRequest("next"), reply_to=desk.answers)
        assert desk.answer().output == "NEXT"
