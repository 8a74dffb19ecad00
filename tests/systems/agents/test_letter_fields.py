"""The fields of a dead letter, each by itself."""

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from uuid import uuid4

import pytest
from opentelemetry import trace

from agents import DeadLetter, MainLoopConfig, MainLoopRequest
from agents.errors import ValidationError
from deadletter.core.events import Retried
from deadletter.testing.fakes import FakeClock
from systems.agents.rig import Rig, failing, running, until


class Errors:
    """A class around an error, which is part of its qualified name."""

    class NoSense(ValidationError):
        """An error whose qualified name is not its plain name."""


@dataclass
class Died:
    """A request that was dead-lettered, and its letter."""

    message_id: str
    request: MainLoopRequest[str]
    letter: DeadLetter[MainLoopRequest[str]]


@pytest.fixture
def died(rig: Rig) -> Iterator[Died]:
    request = MainLoopRequest("hello", uuid4())
    loop = rig.loop(failing(Errors.NoSense("no sense")), dlq=rig.policy(max_delivery_count=2))
    with running(loop):
        message_id = rig.requests.send(request, reply_to=rig.answers)
        yield Died(message_id, request, rig.letter())


def by_hand() -> DeadLetter[str]:
    now = datetime.now(UTC)
    return DeadLetter("m-1", "hello", "requests", 5, "no", "builtins.E", now, now)


def test_dead_letters_are_frozen_slotted_and_generic() -> None:
    letter = by_hand()

    with pytest.raises(FrozenInstanceError):
        letter.body = "another"  # type: ignore[misc]
    assert not hasattr(letter, "__dict__")
    assert get_args(DeadLetter[str]) == (str,)


def test_the_fields_have_the_documented_names_and_order() -> None:
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


@pytest.mark.parametrize("name", ["request_id", "reply_to", "trace_id"])
def test_optional_fields_are_none_by_default(name: str) -> None:
    assert getattr(by_hand(), name) is None


def test_message_id_is_that_of_the_message(died: Died) -> None:
    assert died.letter.message_id == died.message_id


def test_body_is_the_request(died: Died) -> None:
    assert died.letter.body == died.request
    assert type(died.letter.body) is MainLoopRequest


def test_source_mailbox_is_the_name_of_the_mailbox_it_came_from(died: Died) -> None:
    assert died.letter.source_mailbox == "requests"


def test_delivery_count_is_the_number_of_deliveries(died: Died) -> None:
    assert died.letter.delivery_count == 2


def test_last_error_is_the_text_of_the_error(died: Died) -> None:
    assert died.letter.last_error == str(Errors.NoSense("no sense")) == "no sense"


def test_last_error_is_that_of_the_last_attempt(timed: Rig) -> None:
    def adapter(prompt: str, session: Any) -> str:
        raise LookupError(f"failure {session.delivery_count}")

    with running(timed.loop(adapter, dlq=timed.policy(max_delivery_count=3))):
        timed.ask("hello")
        assert timed.letter().last_error == "failure 3"


def test_last_error_type_is_module_and_qualified_name(died: Died) -> None:
    assert died.letter.last_error_type == f"{Errors.NoSense.__module__}.Errors.NoSense"


def test_errors_of_python_itself_have_their_module_too(rig: Rig) -> None:
    with running(rig.loop(failing(KeyError("k")), dlq=rig.policy(max_delivery_count=1))):
        rig.ask("hello")

        assert rig.letter().last_error_type == "builtins.KeyError"


def test_dead_lettered_at_is_the_present_in_utc(timed: Rig, clock: FakeClock) -> None:
    clock.advance(1000)
    with running(timed.loop(failing(LookupError("no")), dlq=timed.policy(max_delivery_count=1))):
        timed.ask("hello")
        letter = timed.letter()

    assert letter.dead_lettered_at == clock.now()
    assert letter.dead_lettered_at.tzinfo is UTC


def test_times_are_kept_on_the_way_through_the_mailbox(died: Died) -> None:
    second = timedelta(seconds=1)  # the server's clock may differ
    assert died.letter.first_received_at <= died.letter.dead_lettered_at
    assert abs(datetime.now(UTC) - died.letter.dead_lettered_at) < 30 * second


def test_first_received_at_is_the_first_delivery_not_the_sending(
    timed: Rig, clock: FakeClock
) -> None:
    timed.ask("hello")
    clock.advance(100)
    received_at = clock.now()
    policy = timed.policy(max_delivery_count=2)
    with running(timed.loop(failing(LookupError("no")), config=MainLoopConfig(), dlq=policy)):
        until(lambda: timed.seen(Retried))
        clock.advance(60)
        letter = timed.letter()

    assert letter.first_received_at == received_at
    assert letter.dead_lettered_at == received_at + timedelta(seconds=60)


def test_request_id_is_that_of_the_body(died: Died) -> None:
    assert died.letter.request_id == died.request.request_id


def test_request_id_is_none_for_another_body(rig: Rig) -> None:
    with running(rig.loop(lambda prompt, session: prompt)):
        rig.backend.call(rig.backend.app.send("requests", b'{"no": "request"}'))

        assert rig.letter().request_id is None


def test_reply_to_is_the_name_of_the_reply_mailbox(died: Died) -> None:
    assert died.letter.reply_to == "answers"


def test_reply_to_is_none_if_nobody_waits_for_a_reply(rig: Rig) -> None:
    with running(rig.loop(failing(LookupError("no")), dlq=rig.policy(max_delivery_count=1))):
        rig.requests.send(MainLoopRequest("hello"))

        assert rig.letter().reply_to is None


def test_trace_id_is_that_of_the_sender(rig: Rig) -> None:
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False)
    with running(rig.loop(failing(LookupError("no")), dlq=rig.policy(max_delivery_count=1))):
        with trace.use_span(trace.NonRecordingSpan(context)):
            rig.ask("hello")

        assert rig.letter().trace_id == f"{0xABC:032x}"


def test_everything_comes_from_the_message_its_mailbox_and_the_error(died: Died) -> None:
    letter = died.letter
    assert letter == DeadLetter(
        message_id=died.message_id,
        body=died.request,
        source_mailbox="requests",
        delivery_count=2,
        last_error="no sense",
        last_error_type=f"{__name__}.Errors.NoSense",
        dead_lettered_at=letter.dead_lettered_at,
        first_received_at=letter.first_received_at,
        request_id=died.request.request_id,
        reply_to="answers",
        trace_id=None,
    )


def test_a_letter_can_be_sent_by_hand_as_well(rig: Rig) -> None:
    letters = rig.box("by-hand-dlq", DeadLetter[str])
    letter = by_hand()

    letters.send(letter)

    assert letters.receive()[0].body == letter
