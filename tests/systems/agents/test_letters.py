"""What a dead letter tells, and in which order its loop does what."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from uuid import uuid4

import pytest
import structlog
from opentelemetry import trace

from agents import DeadLetter, DLQPolicy, MainLoopConfig, MainLoopRequest
from agents.errors import ValidationError
from agents.telemetry import Telemetry
from deadletter import Unavailable
from deadletter.core.events import OutOfReach, Retried
from deadletter.testing.fakes import FakeClock
from systems.agents.rig import Rig, failing, running, until
from systems.agents.spy import Spy

PATIENT = MainLoopConfig()


def a_letter() -> DeadLetter[str]:
    now = datetime.now(UTC)
    return DeadLetter("m-1", "hello", "requests", 5, "no", "builtins.E", now, now)


def test_dead_letters_are_frozen_slotted_and_generic() -> None:
    letter = a_letter()

    with pytest.raises(FrozenInstanceError):
        letter.body = "another"  # type: ignore[misc]
    assert not hasattr(letter, "__dict__")
    assert get_args(DeadLetter[str]) == (str,)


def test_required_and_optional_fields_of_dead_letters() -> None:
    assert [field.name for field in fields(DeadLetter)] == [
        "message_id",
        "body",
        "source_mailbox",
        "delivery_count",
        "last_error",
        "last_error_type",
        "dead_lettered_at",
        "first_received_at",
        "request_id",
        "reply_to",
        "trace_id",
    ]
    letter = a_letter()
    assert (letter.request_id, letter.reply_to, letter.trace_id) == (None, None, None)


def test_dead_letters_are_built_from_the_message_and_the_error(rig: Rig) -> None:
    request = MainLoopRequest("hello", uuid4())
    before = datetime.now(UTC)
    loop = rig.loop(failing(ValidationError("no sense")), dlq=rig.policy(max_delivery_count=2))
    with running(loop):
        sent = rig.requests.send(request, reply_to=rig.answers)
        letter = rig.letter()

    second = timedelta(seconds=1)  # the server's clock may be another
    assert letter.message_id == sent
    assert letter.body == request
    assert letter.source_mailbox == rig.requests.name == "requests"
    assert letter.delivery_count == 2
    assert letter.last_error == "no sense"
    assert letter.last_error_type == "agents.errors.ValidationError"
    assert letter.request_id == request.request_id
    assert letter.reply_to == "answers"
    assert before - second <= letter.first_received_at <= letter.dead_lettered_at
    assert letter.dead_lettered_at <= datetime.now(UTC) + second
    assert letter.dead_lettered_at.tzinfo is UTC


def test_errors_of_python_itself_have_their_module_too(rig: Rig) -> None:
    with running(rig.loop(failing(KeyError("k")), dlq=rig.policy(max_delivery_count=1))):
        rig.ask("hello")

        assert rig.letter().last_error_type == "builtins.KeyError"


def test_the_first_delivery_is_when_it_was_delivered_not_when_it_was_sent(
    timed: Rig, clock: FakeClock
) -> None:
    timed.ask("hello")
    clock.advance(100)
    received_at = clock.now()
    policy = timed.policy(max_delivery_count=2)
    with running(timed.loop(failing(LookupError("no")), config=PATIENT, dlq=policy)):
        until(lambda: timed.seen(Retried))
        clock.advance(60)
        letter = timed.letter()

    assert letter.first_received_at == received_at
    assert letter.dead_lettered_at == received_at + timedelta(seconds=60)


def test_the_trace_of_the_sender_is_in_the_letter(rig: Rig) -> None:
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False)
    with running(rig.loop(failing(LookupError("no")), dlq=rig.policy(max_delivery_count=1))):
        with trace.use_span(trace.NonRecordingSpan(context)):
            rig.ask("hello")

        assert rig.letter().trace_id == f"{0xABC:032x}"


def test_a_letter_can_be_sent_by_hand_as_well(rig: Rig) -> None:
    letters = rig.box("by-hand-dlq", DeadLetter[str])
    letter = a_letter()

    letters.send(letter)

    assert letters.receive()[0].body == letter


@contextmanager
def noted(rig: Rig) -> Iterator[list[str]]:
    """What its engine is asked to do, in order."""
    notes: list[str] = []
    engine: Any = rig.backend.call(rig.backend.engine())
    engine.broker = Spy(engine.broker, notes)
    keeper, verb = engine.letters, "keep"
    if engine.undertaker is not None:
        keeper, verb = engine.undertaker, "bury"
    setattr(keeper, verb, _noting(getattr(keeper, verb), notes))
    yield notes


def _noting(verb: Any, notes: list[str]) -> Any:
    async def noting(letters: Sequence[Any]) -> Any:
        answer = await verb(letters)
        notes.append("letter kept")
        return answer

    return noting


def test_the_letter_is_durable_before_anybody_is_told_and_then_it_is_acknowledged(rig: Rig) -> None:
    with noted(rig) as notes:
        policy = rig.policy(max_delivery_count=2)
        with running(rig.loop(failing(LookupError("no")), dlq=policy)):
            rig.ask("hello")
            rig.answer()
            until(lambda: "acknowledged in requests" in notes)

    told = [note for note in notes if "asked" not in note and "in answers" not in note]
    assert told == [
        "sent to requests",
        "handed back in requests",
        "letter kept",
        "sent to requests-dlq",
        "sent to answers",
        "acknowledged in requests",
    ]


def test_an_answer_is_sent_before_its_request_is_acknowledged(rig: Rig) -> None:
    with noted(rig) as notes, running(rig.loop(lambda prompt, session: prompt)):
        rig.ask("hello")
        rig.answer()
        until(lambda: "acknowledged in requests" in notes)

    assert notes.index("sent to answers") < notes.index("acknowledged in requests")


def test_while_no_letter_can_be_kept_nobody_is_told_and_nothing_is_lost(timed: Rig) -> None:
    engine: Any = timed.backend.call(timed.backend.engine())
    bury, is_away = engine.undertaker.bury, True

    async def refusing(burials: Sequence[Any]) -> Any:
        if is_away:
            raise Unavailable("the office is closed")
        return await bury(burials)

    engine.undertaker.bury = refusing
    policy: DLQPolicy[Any, Any] = timed.policy(max_delivery_count=1)
    with running(timed.loop(failing(LookupError("no")), dlq=policy)):
        timed.ask("hello")
        until(lambda: timed.seen(OutOfReach))
        assert timed.answers.approximate_count() == 0
        assert timed.dead.approximate_count() == 0
        assert timed.requests.approximate_count() == 1
        is_away = False

        assert timed.answer().error == "Dead-lettered after 1 attempts: no"
        assert timed.letter().body.request == "hello"


def test_the_log_says_what_died_of_what(rig: Rig) -> None:
    rig.observers.append(Telemetry())
    loop = rig.loop(failing(ValidationError("no sense")), dlq=rig.policy(max_delivery_count=2))
    with structlog.testing.capture_logs() as lines, running(loop):
        request = rig.ask("hello")
        letter = rig.letter()

    (said,) = [line for line in lines if line["event"] == "buried"]
    assert {
        "log_level": "warning",
        "message_id": letter.message_id,
        "request_id": str(request.request_id),
        "source_mailbox": "requests",
        "delivery_count": 2,
        "error_type": "agents.errors.ValidationError",
        "error_message": "no sense",
    }.items() <= said.items()
