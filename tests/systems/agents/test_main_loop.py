"""The main loop: answers, retries and dead letters."""

import inspect
import threading

import pytest

from agents import (
    DeadLetter,
    DLQPolicy,
    ErrorBudgetPolicy,
    FunctionAdapter,
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    Message,
    PromptResponse,
    Session,
)
from agents.errors import InvalidParameterError, RateLimitError, ValidationError
from deadletter import ConfigError, NoBackoff
from deadletter.core.events import Buried, ReplyFailed, Retried
from deadletter.ports import Released
from deadletter.testing.fakes import FakeClock
from systems.agents.rig import Rig, failing, running, until, upper

PATIENT = MainLoopConfig()  # the default configuration, with its backoff


def test_the_main_loop_is_constructed_with_keywords() -> None:
    parameters = inspect.signature(MainLoop.__init__).parameters

    assert list(parameters)[1:] == ["adapter", "requests", "resources", "config", "dlq"]
    for name in list(parameters)[1:]:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    assert [parameters[name].default for name in ("resources", "config", "dlq")] == [None] * 3


def test_a_request_is_answered_and_removed(rig: Rig) -> None:
    with running(rig.loop(upper)):
        request = rig.ask("hello")

        assert rig.answer() == MainLoopResult(request.request_id, "HELLO")
        until(lambda: rig.requests.approximate_count() == 0)
    assert rig.dead.approximate_count() == 0
    assert rig.kept() == []


def test_a_request_that_keeps_failing_ends_in_the_dead_letter_mailbox(rig: Rig) -> None:
    with running(rig.loop(failing(LookupError("no such thing")))):
        rig.ask("lost")

        assert rig.letter().body.request == "lost"
    assert rig.dead.approximate_count() == 1


def test_the_fifth_failure_is_the_last(rig: Rig) -> None:
    runs: list[int] = []

    def adapter(prompt: str, session: Session) -> str:
        runs.append(session.delivery_count)
        raise LookupError("no such thing")

    policy = DLQPolicy(mailbox=rig.dead, max_delivery_count=5)
    with running(rig.loop(adapter, dlq=policy)):
        rig.ask("lost")
        assert rig.letter().delivery_count == 5

    assert runs == [1, 2, 3, 4, 5]


def test_a_dead_letter_is_acknowledged_at_its_source(rig: Rig) -> None:
    with running(rig.loop(failing(LookupError("no")), dlq=rig.policy(max_delivery_count=2))):
        rig.ask("lost")
        rig.letter()

        until(lambda: rig.requests.approximate_count() == 0)


def test_the_default_configuration_gives_up_after_five_deliveries(
    timed: Rig, clock: FakeClock
) -> None:
    """Nothing is set: the backoff, the brake and the time limits are the usual ones."""
    loop: MainLoop[str, str] = MainLoop(
        adapter=FunctionAdapter(failing(LookupError("no"))),
        requests=timed.requests,
        dlq=DLQPolicy(mailbox=timed.dead),
    )
    with running(loop):
        timed.ask("hello")
        for number in range(1, 5):
            until(lambda n=number: len(timed.seen(Retried)) == n)  # type: ignore[misc]
            clock.advance(60 * number)
        assert timed.letter().delivery_count == 5


def test_dead_letters_go_to_the_mailbox_of_the_policy(rig: Rig) -> None:
    other = rig.box("elsewhere-dlq", DeadLetter[MainLoopRequest[str]])
    policy = DLQPolicy(mailbox=other, max_delivery_count=1)
    with running(rig.loop(failing(LookupError("no")), dlq=policy)):
        rig.ask("lost")
        (message,) = other.receive(wait_time_seconds=15)

    assert message.body.body.request == "lost"
    assert rig.dead.approximate_count() == 0


def test_a_failing_request_does_not_block_the_next_ones(rig: Rig) -> None:
    def adapter(prompt: str, session: Session) -> str:
        if prompt == "poison":
            raise ValueError("it hurts")
        return prompt.upper()

    with running(rig.loop(adapter, config=PATIENT)):
        poison = MainLoopRequest("poison")
        rig.requests.send(poison)
        asked = [rig.ask(text).request_id for text in ("a", "b", "c")]

        assert {rig.answer().request_id for _ in asked} == set(asked)

    assert rig.requests.approximate_count() == 1  # it is still there, and waits


def test_an_adapter_evaluates_prompts_of_the_loop(timed: Rig) -> None:
    """Any object with the method of the protocol is an adapter."""
    evaluated: list[tuple[object, Session]] = []

    class Provider:
        def evaluate(self, prompt: object, *, session: Session) -> PromptResponse[str]:
            evaluated.append((prompt, session))
            return PromptResponse(output=f"answer to {prompt}")

    class Asking(MainLoop[str, str]):
        def prepare(self, request: str) -> list[str]:
            return ["please", request]

    loop = Asking(adapter=Provider(), requests=timed.requests)
    with running(loop):
        request = timed.ask("hello")
        assert timed.answer().output == "answer to ['please', 'hello']"

    ((prompt, session),) = evaluated
    assert prompt == ["please", "hello"]
    assert session.request_id == request.request_id


def test_resources_and_the_request_are_in_the_session(timed: Rig) -> None:
    sessions: list[Session] = []

    def adapter(prompt: str, session: Session) -> str:
        sessions.append(session)
        return prompt

    with running(timed.loop(adapter, resources={"library": "at hand"})):
        request = timed.ask("hello")
        timed.answer()

    assert sessions == [Session(request.request_id, 1, {"library": "at hand"})]


def test_the_backoff_grows_by_a_minute_up_to_fifteen_minutes(timed: Rig, clock: FakeClock) -> None:
    loop = timed.loop(
        failing(LookupError("no")), config=PATIENT, dlq=timed.policy(max_delivery_count=18)
    )
    with running(loop):
        timed.ask("hello")
        for number in range(1, 18):
            until(lambda n=number: len(timed.seen(Retried)) == n)  # type: ignore[misc]
            delay = min(60 * number, 900)
            assert timed.seen(Retried)[-1].delay == delay
            assert timed.requests.approximate_count() == 1
            clock.advance(delay - 1)
            assert timed.requests.receive() == []  # out of sight until then
            assert len(timed.seen(Retried)) == number
            clock.advance(1)
        timed.letter()

    assert [event.delay for event in timed.seen(Retried)][-4:] == [840, 900, 900, 900]


def test_excluded_errors_wait_as_long_as_others(timed: Rig, clock: FakeClock) -> None:
    policy = timed.policy(max_delivery_count=1, exclude_errors=frozenset({RateLimitError}))
    loop = timed.loop(failing(RateLimitError("slower")), config=PATIENT, dlq=policy)
    with running(loop):
        timed.ask("hello")
        for number in range(1, 4):
            until(lambda n=number: len(timed.seen(Retried)) == n)  # type: ignore[misc]
            clock.advance(60 * number)

    assert [event.delay for event in timed.seen(Retried)][:3] == [60, 120, 180]
    assert timed.dead.approximate_count() == 0


def test_callers_get_one_reply_and_none_for_retries(rig: Rig) -> None:
    told: list[int] = []  # answers there were when a run began

    def adapter(prompt: str, session: Session) -> str:
        told.append(rig.answers.approximate_count())
        if session.delivery_count < 3:
            raise TimeoutError("not yet")
        return "at last"

    with running(rig.loop(adapter)):
        request = rig.ask("hello")
        until(lambda: rig.requests.approximate_count() == 0)
        assert rig.answers.approximate_count() == 1
        result = rig.answer()

    assert told == [0, 0, 0]
    assert result == MainLoopResult(request.request_id, "at last")
    assert len(rig.seen(Retried)) == 2
    assert rig.answers.approximate_count() == 0


def test_the_error_reply_names_attempts_and_error(rig: Rig) -> None:
    loop = rig.loop(failing(LookupError("no such thing")), dlq=rig.policy(max_delivery_count=3))
    with running(loop):
        request = rig.ask("hello")
        result = rig.answer()
        until(lambda: rig.requests.approximate_count() == 0)

    assert result.request_id == request.request_id
    assert result.error == "Dead-lettered after 3 attempts: no such thing"
    assert not result.success
    assert rig.answers.approximate_count() == 0


def test_requests_without_a_reply_mailbox_are_dead_lettered_too(rig: Rig) -> None:
    with running(rig.loop(failing(LookupError("no")), dlq=rig.policy(max_delivery_count=1))):
        rig.requests.send(MainLoopRequest("hello"))

        assert rig.letter().reply_to is None


def test_a_failed_reply_does_not_hold_up_the_dead_letter(rig: Rig) -> None:
    request = MainLoopRequest("hello")
    loop = rig.loop(failing(LookupError("no")), dlq=rig.policy(max_delivery_count=1))
    with running(loop):
        rig.backend.call(rig.backend.app.send("requests", request, reply_to="no mailbox at all"))

        assert rig.letter().reply_to == "no mailbox at all"
        until(lambda: rig.requests.approximate_count() == 0)
    assert [event.reply_to for event in rig.seen(ReplyFailed)] == ["no mailbox at all"]


def test_included_errors_are_dead_lettered_at_once_and_excluded_ones_never(rig: Rig) -> None:
    counts: list[int] = []

    def adapter(prompt: str, session: Session) -> str:
        if prompt == "invalid":
            raise ValidationError("makes no sense")
        counts.append(session.delivery_count)
        if len(counts) < 8:
            raise RateLimitError("slower")
        return "done"

    policy = rig.policy(
        max_delivery_count=2,
        include_errors=frozenset({ValidationError}),
        exclude_errors=frozenset({RateLimitError}),
    )
    with running(rig.loop(adapter, dlq=policy)):
        rig.ask("busy")
        assert rig.answer().output == "done"
        rig.ask("invalid")
        letter = rig.letter()

    assert counts == list(range(1, 9))
    assert (letter.delivery_count, letter.body.request) == (1, "invalid")
    assert len(rig.seen(Buried)) == 1


def test_errors_that_the_policy_does_not_list_are_counted(rig: Rig) -> None:
    with running(rig.loop(failing(ValidationError("no")), dlq=rig.policy(max_delivery_count=2))):
        rig.ask("hello")

        assert rig.letter().delivery_count == 2


def test_without_a_policy_requests_are_retried_without_a_limit(rig: Rig) -> None:
    def adapter(prompt: str, session: Session) -> str:
        if session.delivery_count < 12:
            raise ValidationError("not yet")
        return "at last"

    with running(rig.loop(adapter, dlq=None)):
        rig.ask("hello")

        assert rig.answer().output == "at last"
    assert rig.kept() == []


def test_custom_policies_are_followed(rig: Rig) -> None:
    asked: list[tuple[str, int]] = []

    class Stubborn(DLQPolicy[MainLoopRequest[str], MainLoopResult[str]]):
        def should_dead_letter(
            self, message: Message[MainLoopRequest[str], object], error: Exception
        ) -> bool:
            asked.append((message.body.request, message.delivery_count))
            return message.delivery_count >= 8

    with running(
        rig.loop(failing(LookupError("no")), dlq=Stubborn(mailbox=rig.dead, max_delivery_count=2))
    ):
        rig.ask("hello")

        assert rig.letter().delivery_count == 8
    assert asked == [("hello", number) for number in range(1, 9)]


def test_an_error_budget_dead_letters_early(rig: Rig) -> None:
    policy = ErrorBudgetPolicy(mailbox=rig.dead, max_delivery_count=1000, error_budget=0.3)
    with running(rig.loop(failing(LookupError("no")), dlq=policy)):
        rig.ask("hello")
        letter = rig.letter()

    # Each failure weighs a fiftieth: eighteen bring the rate above 0.3.
    assert letter.delivery_count == 19


def test_every_receive_without_acknowledgement_counts(rig: Rig) -> None:
    rig.requests.send(MainLoopRequest("hello"))
    for _ in range(4):
        (message,) = rig.requests.receive(wait_time_seconds=5)
        message.nack()

    with running(rig.loop(failing(LookupError("no")))):
        assert rig.letter().delivery_count == 5
    assert len(rig.seen(Retried)) == 0


def hand_back(rig: Rig, times: int) -> None:
    """Receive the next request and return it, as a worker does that is shut down."""

    async def handing_back() -> None:
        source = (await rig.backend.broker()).source("requests")
        for _ in range(times):
            (delivery,) = await source.receive(limit=1, wait=5, lease=30)
            assert await source.settle([Released(delivery, charged=False)]) == [True]

    rig.backend.call(handing_back())


def test_deliveries_that_a_worker_returned_count_too(rig: Rig) -> None:
    rig.ask("hello")
    hand_back(rig, 4)

    with running(rig.loop(failing(LookupError("no")))):
        assert rig.letter().delivery_count == 5
        assert rig.answer().error == "Dead-lettered after 5 attempts: no"
    assert rig.seen(Retried) == []


def test_deliveries_that_a_worker_returned_can_be_left_uncounted(rig: Rig) -> None:
    rig.ask("hello")
    hand_back(rig, 4)
    config = MainLoopConfig(backoff=NoBackoff(), count_every_delivery=False)

    with running(rig.loop(failing(LookupError("no")), config=config)):
        assert rig.letter().delivery_count == 5
    assert len(rig.seen(Retried)) == 4


def test_undecodable_bodies_are_dead_lettered_at_once_as_bytes(rig: Rig) -> None:
    runs: list[str] = []

    def adapter(prompt: str, session: Session) -> str:
        runs.append(prompt)
        return prompt

    with running(rig.loop(adapter)):
        rig.backend.call(rig.backend.app.send("requests", b"{no request", reply_to="answers"))
        letter = rig.letter()
        result = rig.answer()

    assert letter.body == b"{no request"  # type: ignore[comparison-overlap]
    assert letter.delivery_count == 1
    assert result.error is not None
    assert runs == []


def test_expired_requests_are_dead_lettered(timed: Rig, clock: FakeClock) -> None:
    late = timed.ask("too late")
    clock.advance(1)
    just = timed.ask("just in time")
    clock.advance(259_199)
    with running(timed.loop(upper)):
        results = {answer.request_id: answer for answer in (timed.answer(), timed.answer())}
        letter = timed.letter()

    assert results[just.request_id].output == "JUST IN TIME"
    assert results[late.request_id].error is not None  # told so
    assert letter.last_error_type.endswith("Expired")
    assert letter.request_id == late.request_id
    assert timed.dead.approximate_count() == 1


@pytest.mark.parametrize("wait", [0.0, 0.5])
def test_shutdown_waits_for_the_current_request(timed: Rig, wait: float) -> None:
    going: list[str] = []
    may_go = threading.Event()

    def adapter(prompt: str, session: Session) -> str:
        going.append(prompt)
        may_go.wait(20)
        return prompt

    loop = timed.loop(adapter)
    assert not loop.running
    with running(loop) as group:
        timed.ask("hello")
        until(lambda: going)
        assert loop.running
        assert group.shutdown(timeout=wait) is False  # it is not done yet
        may_go.set()
        assert group.shutdown(timeout=20) is True
    assert timed.answer().output == "hello"
    assert not loop.running


def test_a_dead_letter_mailbox_must_be_another_mailbox_of_the_backend(timed: Rig) -> None:
    with pytest.raises(ConfigError, match="its own dead-letter mailbox"):
        timed.loop(upper, dlq=DLQPolicy(mailbox=timed.requests))  # type: ignore[arg-type]
    other = Rig("memory://")
    try:
        with pytest.raises(InvalidParameterError, match="same backend"):
            timed.loop(upper, dlq=DLQPolicy(mailbox=other.dead))
    finally:
        other.backend.close()
