"""The eval loop handles samples as the main loop handles requests."""

import inspect
from typing import Any

from agents import (
    BackendMailbox,
    DeadLetter,
    DLQPolicy,
    EvalLoop,
    EvalRequest,
    EvalResult,
    Sample,
    Score,
    Session,
)
from agents.errors import RateLimitError, ValidationError
from agents.requests import ToolCall
from deadletter.core.events import Retried
from systems.agents.rig import Rig, running, until

Request = EvalRequest[str, str]


class Bench:
    """The mailboxes of an eval loop; its main loop does not run by itself."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.requests: BackendMailbox[Request, EvalResult] = rig.box("eval-requests", Request)
        self.dead: BackendMailbox[DeadLetter[Request], None] = rig.box(
            "eval-requests-dlq", DeadLetter[Request]
        )
        self.scores: BackendMailbox[EvalResult, None] = rig.box("scores", EvalResult)

    def loop(self, evaluator: Any, **options: Any) -> EvalLoop[str, str, str]:
        def adapter(prompt: str, session: Session) -> str:
            if prompt == "invalid":
                raise ValidationError("makes no sense")
            if prompt == "busy" and session.delivery_count < 4:
                raise RateLimitError("slower")
            session.calls.append(ToolCall("upper", prompt, prompt.upper()))
            return prompt.upper()

        options.setdefault("dlq", DLQPolicy(mailbox=self.dead, max_delivery_count=2))
        return EvalLoop(
            loop=self.rig.loop(adapter), evaluator=evaluator, requests=self.requests, **options
        )

    def try_out(self, text: str, expected: str = "A") -> Request:
        request = EvalRequest(Sample(f"s-{text}", text, expected))
        self.requests.send(request, reply_to=self.scores)
        return request

    def score(self) -> EvalResult:
        (message,) = self.scores.receive(wait_time_seconds=15)
        message.acknowledge()
        return message.body


def exactly(output: str, expected: str) -> Score:
    return Score(float(output == expected), output == expected)


def by_tools(output: str, expected: str, session: Session) -> Score:
    return Score(1.0, passed=True, reason=session.calls[0].tool)


def test_the_eval_loop_takes_a_loop_an_evaluator_and_requests() -> None:
    parameters = inspect.signature(EvalLoop.__init__).parameters

    assert {"loop", "evaluator", "requests", "dlq"} <= set(parameters)
    assert parameters["dlq"].default is None
    for name in list(parameters)[1:]:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


def test_samples_are_run_and_scored(rig: Rig) -> None:
    bench = Bench(rig)
    with running(bench.loop(exactly)):
        right, wrong = bench.try_out("a"), bench.try_out("b")
        scored = [bench.score(), bench.score()]

    results = {result.sample_id: result for result in scored}
    assert results["s-a"].score == Score(1.0, passed=True)
    assert results["s-a"].request_id == right.request_id
    assert results["s-b"].score == Score(0.0, passed=False)
    assert results["s-b"].request_id == wrong.request_id
    assert results["s-a"].latency_ms >= 0
    assert bench.dead.approximate_count() == 0


def test_an_evaluator_may_look_at_the_session(rig: Rig) -> None:
    bench = Bench(rig)
    with running(bench.loop(by_tools)):
        bench.try_out("a")

        assert bench.score().score == Score(1.0, passed=True, reason="upper")


def test_a_sample_that_fails_becomes_a_dead_letter_with_its_request(rig: Rig) -> None:
    bench = Bench(rig)
    with running(bench.loop(exactly)):
        request = bench.try_out("invalid")
        result = bench.score()
        (message,) = bench.dead.receive(wait_time_seconds=15)
        until(lambda: bench.requests.approximate_count() == 0)

    letter = message.body
    assert letter.body == request
    assert letter.request_id == request.request_id
    assert (letter.source_mailbox, letter.delivery_count) == ("eval-requests", 2)
    assert letter.last_error_type == "agents.errors.ValidationError"
    assert letter.reply_to == "scores"
    assert result == EvalResult(
        request.request_id, "s-invalid", error="Dead-lettered after 2 attempts: makes no sense"
    )
    assert len(rig.seen(Retried)) == 1  # of which nobody was told
    assert bench.scores.approximate_count() == 0


def test_the_eval_loop_follows_its_policy(rig: Rig) -> None:
    bench = Bench(rig)
    policy = DLQPolicy(
        mailbox=bench.dead,
        max_delivery_count=2,
        include_errors=frozenset({ValidationError}),
        exclude_errors=frozenset({RateLimitError}),
    )
    with running(bench.loop(exactly, dlq=policy)):
        bench.try_out("busy", "BUSY")
        assert bench.score().score == Score(1.0, passed=True)
        bench.try_out("invalid")
        (message,) = bench.dead.receive(wait_time_seconds=15)

    assert message.body.delivery_count == 1
