"""Groups of loops, and their health checks."""

import asyncio
import inspect
import json
import threading
import time
from typing import Any
from urllib.request import urlopen

import pytest

from agents import (
    Backend,
    BackendMailbox,
    DeadLetter,
    DLQConsumer,
    DLQPolicy,
    EvalLoop,
    EvalRequest,
    EvalResult,
    FunctionAdapter,
    LoopGroup,
    MainLoop,
    Sample,
    Score,
    Session,
)
from agents.errors import MailboxConnectionError
from agents.health import health_check
from deadletter import ConfigError
from deadletter.testing.fakes import eventually
from systems.agents.rig import Rig, running, until, upper


def test_main_and_eval_loops_and_consumers_run_together(rig: Rig) -> None:
    main_loop = rig.loop(upper)
    evals: Any = rig.box("eval-requests", EvalRequest[str, str])
    dead: Any = rig.box("eval-requests-dlq", DeadLetter[EvalRequest[str, str]])
    scores: Any = rig.box("scores", EvalResult)

    def judge(output: str, expected: str) -> Score:
        if expected == "?":
            raise LookupError("nothing to compare with")
        return Score(1.0, passed=output == expected)

    eval_loop: EvalLoop[str, str, str] = EvalLoop(
        loop=main_loop,
        evaluator=judge,
        requests=evals,
        dlq=DLQPolicy(mailbox=dead, max_delivery_count=1),
    )
    seen: list[DeadLetter[Any]] = []
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=dead, handler=seen.append)
    with running(main_loop, eval_loop, consumer):
        rig.ask("hello")
        evals.send(EvalRequest(Sample("s-1", "a", "A")), reply_to=scores)
        evals.send(EvalRequest(Sample("s-2", "a", "?")))

        assert rig.answer().output == "HELLO"
        (score,) = scores.receive(wait_time_seconds=15)
        until(lambda: seen)
    assert score.body.score.passed
    assert seen[0].body.sample.id == "s-2"


def test_group_parameters_and_their_defaults(timed: Rig) -> None:
    parameters = inspect.signature(LoopGroup.__init__).parameters

    assert parameters["watchdog_threshold"].default == 720.0
    assert parameters["health_port"].default is None
    group = LoopGroup(loops=[timed.loop(upper)], health_port=8080, watchdog_threshold=720.0)
    assert group.shutdown(timeout=0)  # it was never started


def deepen(rig: Rig, count: int) -> None:
    """Put this number of messages into the dead-letter mailbox."""

    async def sending() -> None:
        await rig.backend.app.send_many("requests-dlq", [b"{}"] * count)

    rig.backend.call(sending())


def test_health_counts_the_dead_letters(rig: Rig) -> None:
    deepen(rig, 7)

    assert health_check(rig.dead)["dlq"]["depth"] == rig.dead.approximate_count() == 7


@pytest.mark.parametrize(("depth", "status"), [(99, "healthy"), (100, "degraded")])
def test_health_is_degraded_from_a_hundred_on(timed: Rig, depth: int, status: str) -> None:
    deepen(timed, depth)

    assert health_check(timed.dead)["status"] == status


def test_the_health_body(timed: Rig) -> None:
    deepen(timed, 3)

    assert health_check(timed.dead) == {
        "status": "healthy",
        "dlq": {"name": "requests-dlq", "depth": 3, "threshold": 100},
    }


def test_health_shows_the_deepest_of_several_mailboxes(timed: Rig) -> None:
    deepen(timed, 3)
    other: Any = timed.box("eval-requests-dlq")

    assert health_check(other, timed.dead)["dlq"]["name"] == "requests-dlq"


async def test_a_group_serves_the_health_checks(timed: Rig) -> None:
    deepen(timed, 100)
    with running(timed.loop(upper), health_port=0) as group:
        # Until it listens, its port is the one that was asked for: any.
        await eventually(lambda: (group.health_address or ("", 0))[1], within=10)
        assert group.health_address is not None
        host, port = group.health_address

        def asked(path: str) -> dict[str, Any]:
            with urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found

        until(lambda: asked("/health/live") == {"status": "healthy"})
        until(lambda: asked("/health/ready") == {"status": "healthy"})
        told = asked("/health/dlq")

    assert told["status"] == "degraded"
    assert told["dlq"] == {"name": "requests-dlq", "depth": 100, "threshold": 100}


def test_a_group_runs_for_longer_than_a_call_may_take() -> None:
    with Backend("memory://", call_timeout=0.3) as backend:
        requests: BackendMailbox[Any, Any] = BackendMailbox(name="requests", client=backend)
        loop: MainLoop[str, str] = MainLoop(adapter=FunctionAdapter(upper), requests=requests)
        with running(loop):
            began = time.monotonic()
            until(lambda: time.monotonic() - began > 0.6)
            assert loop.running


def test_a_long_poll_may_take_longer_than_a_call() -> None:
    with Backend("memory://", call_timeout=0.3) as backend:
        box: BackendMailbox[Any, Any] = BackendMailbox(name="requests", client=backend)

        assert box.receive(wait_time_seconds=0.6) == []


def test_a_call_that_gets_no_answer_is_a_connection_error() -> None:
    async def hanging() -> None:
        await asyncio.Event().wait()

    with (
        Backend("memory://", call_timeout=0.1) as backend,
        pytest.raises(MailboxConnectionError, match=r"no answer within 0\.1 seconds"),
    ):
        backend.call(hanging())


def test_several_loops_may_work_one_mailbox(timed: Rig) -> None:
    together = threading.Barrier(2, timeout=20)

    def adapter(prompt: str, session: Session) -> str:
        together.wait()  # both are at work
        return prompt.upper()

    with running(timed.loop(adapter), timed.loop(adapter)):
        timed.ask("a")
        timed.ask("b")
        assert {timed.answer().output, timed.answer().output} == {"A", "B"}


def test_the_loops_of_a_group_share_one_backend(timed: Rig) -> None:
    with Backend("memory://") as other:
        requests: BackendMailbox[Any, Any] = BackendMailbox(name="requests", client=other)
        loop: MainLoop[str, str] = MainLoop(adapter=FunctionAdapter(upper), requests=requests)
        with pytest.raises(ConfigError, match="must share one backend, got 2: make"):
            LoopGroup(loops=[timed.loop(upper), loop])
