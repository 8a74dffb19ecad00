"""The order of the steps of dead-lettering, and its log lines."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import structlog

from agents import DLQPolicy, MainLoopConfig
from agents.errors import ValidationError
from agents.telemetry import Telemetry
from deadletter import Unavailable
from deadletter.core.events import OutOfReach
from systems.agents.broker_recorder import BrokerRecorder
from systems.agents.rig import Rig, failing, running, until

PATIENT = MainLoopConfig()


@contextmanager
def noted(rig: Rig) -> Iterator[list[str]]:
    """Yield the steps of the engine, in order."""
    notes: list[str] = []
    engine: Any = rig.backend.call(rig.backend.engine())
    engine.broker = BrokerRecorder(engine.broker, notes)
    keeper, verb = engine.letters, "keep"
    if engine.atomic_burial is not None:
        keeper, verb = engine.atomic_burial, "bury"
    setattr(keeper, verb, _noting(getattr(keeper, verb), notes))
    yield notes


def _noting(verb: Any, notes: list[str]) -> Any:
    async def noting(letters: Sequence[Any]) -> Any:
        answer = await verb(letters)
        notes.append("letter kept")
        return answer

    return noting


def test_the_order_is_letter_then_copy_then_reply_then_acknowledgement(rig: Rig) -> None:
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


def test_nothing_is_sent_or_acknowledged_while_the_office_is_unavailable(timed: Rig) -> None:
    engine: Any = timed.backend.call(timed.backend.engine())
    bury, is_away = engine.atomic_burial.bury, True

    async def refusing(burials: Sequence[Any]) -> Any:
        if is_away:
            raise Unavailable("the office is closed")
        return await bury(burials)

    engine.atomic_burial.bury = refusing
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


DEAD_LETTERED = "Message dead-lettered"


@pytest.fixture
def logged(rig: Rig) -> dict[str, Any]:
    """The line about a request that has failed twice; `letter` and `request` come with it."""
    rig.observers.append(Telemetry())
    loop = rig.loop(failing(ValidationError("no sense")), dlq=rig.policy(max_delivery_count=2))
    with structlog.testing.capture_logs() as lines, running(loop):
        request = rig.ask("hello")
        letter = rig.letter()
        until(lambda: [line for line in lines if line["event"] == DEAD_LETTERED])
    (said,) = [line for line in lines if line["event"] == DEAD_LETTERED]
    return {**said, "letter": letter, "request": request}


def test_dead_lettering_is_logged_as_a_warning(logged: dict[str, Any]) -> None:
    assert logged["log_level"] == "warning"
    assert logged["message_id"] == logged["letter"].message_id
    assert logged["request_id"] == str(logged["request"].request_id)
    assert logged["delivery_count"] == 2
    assert logged["error_type"] == "agents.errors.ValidationError"


def test_the_warning_also_has_the_source_and_the_text_of_the_error(logged: dict[str, Any]) -> None:
    assert logged["source_mailbox"] == "requests"
    assert logged["error_message"] == "no sense"


def test_every_dead_letter_has_its_line(rig: Rig) -> None:
    rig.observers.append(Telemetry())
    with structlog.testing.capture_logs() as lines:
        rig.bury(**{f"r{number}": LookupError("no") for number in range(25)})

    assert len([line for line in lines if line["event"] == DEAD_LETTERED]) == 25


def test_the_log_names_errors_of_python_as_the_letter_does(rig: Rig) -> None:
    rig.observers.append(Telemetry())
    with structlog.testing.capture_logs() as lines:
        rig.bury(hello=KeyError("k"))

    (said,) = [line for line in lines if line["event"] == DEAD_LETTERED]
    assert said["error_type"] == rig.letter().last_error_type == "builtins.KeyError"
