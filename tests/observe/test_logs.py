"""One safe line per event, and never so many that the disk fills."""

import builtins
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.events import (
    AnyEvent,
    Buried,
    Event,
    LetterHandled,
    Retried,
    Succeeded,
    WorkerStarted,
)
from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.observe.logs import LEVELS, fields_of, line, log_events, name_of

FAILURE = Failure(
    trouble=Trouble.TRANSIENT,
    code="TIMEOUT",
    error_type="builtins.TimeoutError",
    text="the bank did not answer",
    stack="Traceback ...",
)
BURIED = Buried(
    mailbox="orders",
    message_id="m-1",
    letter_id="l-1",
    attempt=5,
    reason=Reason.ATTEMPTS_EXHAUSTED,
    text="failed 5 of 5 attempts",
    failure=FAILURE,
    request_id="r-1",
)
Line = tuple[int, str, Mapping[str, Any]]


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lines_of(*events: Event) -> list[Line]:
    lines: list[Line] = []
    observe = log_events(Clock(), log=lambda *line: lines.append(line))
    for event in events:
        observe(event)
    return lines


def retried(text: str = "no", mailbox: str = "orders") -> Retried:
    failure = Failure(trouble=Trouble.TRANSIENT, code="TIMEOUT", error_type="E", text=text)
    return Retried(
        mailbox=mailbox, message_id="m", attempt=1, delay=1.0, charged=True, failure=failure
    )


def test_a_burial_is_a_warning_with_what_one_searches_for_r3_83() -> None:
    [(level, name, fields)] = lines_of(BURIED)

    assert level == logging.WARNING
    assert name == "buried"
    wanted = {
        "message_id": "m-1",
        "request_id": "r-1",
        "source_mailbox": "orders",
        "delivery_count": 5,
        "error_type": "builtins.TimeoutError",
        "error_message": "the bank did not answer",
    }
    assert wanted.items() <= fields.items()
    assert fields["reason"] == "attempts-exhausted"
    assert "stack" not in fields


def test_a_handled_letter_is_told_with_age_and_action_r3_84() -> None:
    event = LetterHandled(
        mailbox="orders-dlq",
        letter_id="l-1",
        message_id="m-1",
        request_id="r-1",
        seconds=0.25,
        age=3600.0,
        action="replayed",
    )

    [(level, name, fields)] = lines_of(event)

    assert (level, name) == (logging.INFO, "letter-handled")
    assert fields["message_id"] == "m-1"
    assert fields["request_id"] == "r-1"
    assert fields["age_seconds"] == 3600.0
    assert fields["action"] == "replayed"


def test_success_is_for_those_who_debug() -> None:
    event = Succeeded(mailbox="orders", message_id="m", attempt=1, seconds=0.1)

    [(level, name, _)] = lines_of(event)

    assert (level, name) == (logging.DEBUG, "succeeded")


def test_every_event_has_a_level_and_a_name_of_its_own() -> None:
    events = get_args(AnyEvent)

    assert set(LEVELS) == set(events)
    assert len({event.__struct_config__.tag for event in events}) == len(events)


@given(st.text())
def test_a_text_is_one_safe_bounded_line(text: str) -> None:
    shown = line(text)

    assert len(shown) <= 501 * len("\\U00000000")
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F for c in shown)
    shown.encode()  # half a surrogate pair could not be written


@pytest.mark.parametrize(
    "attack",
    [
        "ok\n2026-01-01 [info] all is well",
        "\r\x1b[2J\x1b[31mred",
        "\x1b]8;;http://evil\x07click\x1b]8;;\x07",
        "a\u2028b\u2029c\u202egnp.exe\u2066x",
        "\x00\x07\x7f\x85\x9b31m",
        "\ud800 half",
    ],
)
def test_no_text_of_a_message_forges_a_line_or_drives_a_terminal(
    attack: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_structlog(monkeypatch)
    caplog.set_level(logging.INFO, "deadletter")

    log_events(Clock())(retried(attack, mailbox=attack))

    [record] = caplog.records
    message = record.getMessage()
    assert len(message.splitlines()) == 1
    assert message.isprintable()
    message.encode()


def test_braces_and_percent_signs_are_nothing_special(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_structlog(monkeypatch)
    caplog.set_level(logging.INFO, "deadletter")

    log_events(Clock())(retried("%s %n %(x)d {0.__class__} {{7*7}}"))

    assert "%s %n %(x)d {0.__class__} {{7*7}}" in caplog.records[0].getMessage()


def test_an_outage_does_not_fill_the_disk_f105(clock: Clock) -> None:
    lines: list[Line] = []
    observe = log_events(clock, log=lambda *line: lines.append(line))

    for _ in range(60):
        clock.seconds += 1
        for _ in range(1000):
            observe(retried("x" * 10_000))

    assert sum(len(str(line)) for line in lines) < 1_000_000
    assert sum(name == "retried" for _, name, _ in lines) == 600


def test_dropped_log_lines_are_counted(clock: Clock) -> None:
    lines: list[Line] = []
    observe = log_events(clock, log=lambda *line: lines.append(line), lines_a_second=2)
    for _ in range(7):
        observe(retried())
    clock.seconds += 1

    observe(BURIED)

    left_out = {"kind": "retried", "mailbox": "orders", "lines": 5}
    assert [name for _, name, _ in lines] == ["retried", "retried", "left-out", "buried"]
    assert lines[2][2] == left_out


def test_a_flood_of_one_kind_does_not_hide_another(clock: Clock) -> None:
    lines: list[Line] = []
    observe = log_events(clock, log=lambda *line: lines.append(line), lines_a_second=1)

    observe(retried())
    observe(retried())
    observe(BURIED)
    observe(retried(mailbox="mails"))

    assert [name for _, name, _ in lines] == ["retried", "buried", "retried"]


def test_countless_mailboxes_do_not_take_countless_memory(clock: Clock) -> None:
    lines: list[Line] = []
    observe = log_events(clock, log=lambda *line: lines.append(line), lines_a_second=1)

    for n in range(5000):
        observe(retried(mailbox=f"box-{n}"))

    assert len(lines) <= 1002


def test_with_structlog_lines_go_there() -> None:
    with structlog.testing.capture_logs() as captured:
        log_events(Clock())(BURIED)

    [line] = captured
    assert line["event"] == "buried"
    assert line["log_level"] == "warning"
    assert line["message_id"] == "m-1"


def test_without_structlog_lines_go_to_the_standard_library(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_structlog(monkeypatch)
    caplog.set_level(logging.INFO, "deadletter")

    observe = log_events(Clock())
    observe(BURIED)
    observe(WorkerStarted(mailbox="orders", slots=100))
    observe(Succeeded(mailbox="orders", message_id="m", attempt=1, seconds=0.1))

    first, second = caplog.records  # success is below the level
    assert first.levelno == logging.WARNING
    assert first.getMessage().startswith("buried source_mailbox=orders message_id=m-1")
    assert 'error_message="the bank did not answer"' in first.getMessage()
    assert vars(first)["deadletter"] == fields_of(BURIED)
    assert second.getMessage() == "worker-started mailbox=orders slots=100"
    assert name_of(BURIED) == "buried"


def without_structlog(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "structlog":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)
