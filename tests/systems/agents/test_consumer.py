"""The consumer of a dead-letter mailbox."""

import inspect
import threading
from typing import Any

import pytest
import structlog

from agents import DeadLetter, DLQConsumer, MainLoopRequest
from agents.errors import MailboxConnectionError
from agents.letter_handlers import Alert, Handler, safe
from agents.retention import RetentionLoop, delete_finished, discard_expired
from agents.telemetry import Telemetry
from deadletter.core.events import LetterHandled, LetterRefused
from deadletter.core.letter import By
from deadletter.office.letters import Letters
from deadletter.runtime.deliveries import Heartbeat
from deadletter.testing.fakes import FakeClock
from systems.agents.broker_recorder import BrokerRecorder
from systems.agents.rig import Rig, running, until, upper

NO = LookupError("no such thing")


def refuse(letter: DeadLetter[Any]) -> None:
    raise ConnectionError("nobody is there")


def keywords(method: Any) -> dict[str, Any]:
    """The parameters of a method, which must be keyword-only, with their defaults."""
    _, *parameters = inspect.signature(method).parameters.values()
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in parameters)
    return {one.name: one.default for one in parameters}


REQUIRED = inspect.Parameter.empty


def test_parameters_of_the_constructor() -> None:
    assert keywords(DLQConsumer.__init__) == {
        "mailbox": REQUIRED,
        "handler": REQUIRED,
        "visibility_timeout": 300,
    }


def test_parameters_of_run() -> None:
    assert keywords(DLQConsumer.run) == {
        "max_iterations": None,
        "visibility_timeout": None,
        "wait_time_seconds": 20,
    }


def test_parameters_of_shutdown() -> None:
    assert keywords(DLQConsumer.shutdown) == {"timeout": 30.0}


def test_the_consumer_starts_stopped_with_its_own_heartbeat(timed: Rig) -> None:
    one: DLQConsumer[Any] = DLQConsumer(mailbox=timed.dead, handler=print)
    two: DLQConsumer[Any] = DLQConsumer(mailbox=timed.dead, handler=print)

    assert not one.running
    assert isinstance(one.heartbeat, Heartbeat)
    assert one.heartbeat is not two.heartbeat


def test_handled_letters_are_removed(rig: Rig) -> None:
    rig.bury(a=NO, b=NO)
    seen: list[DeadLetter[Any]] = []

    DLQConsumer(mailbox=rig.dead, handler=seen.append).run(max_iterations=1, wait_time_seconds=5)

    assert [letter.body.request for letter in seen] == ["a", "b"]  # as they died
    assert all(isinstance(letter, DeadLetter) for letter in seen)
    assert rig.dead.approximate_count() == 0
    assert len(rig.kept()) == 2  # the office still knows


def test_letters_whose_handler_fails_stay_and_return_after_an_hour(
    timed: Rig, clock: FakeClock
) -> None:
    timed.bury(a=NO)
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=timed.dead, handler=refuse)

    consumer.run(max_iterations=1, wait_time_seconds=0)

    assert [event.delay for event in timed.seen(LetterRefused)] == [3600]
    clock.advance(3599)
    assert timed.dead.receive() == []
    clock.advance(1)
    (again,) = timed.dead.receive()
    assert (again.body.body.request, again.delivery_count) == ("a", 2)


def test_handler_failures_are_logged_as_errors(rig: Rig) -> None:
    rig.observers.append(Telemetry())
    rig.bury(a=NO)

    with structlog.testing.capture_logs() as lines:
        DLQConsumer(mailbox=rig.dead, handler=refuse).run(max_iterations=1, wait_time_seconds=5)

    (said,) = [line for line in lines if line["event"] == "DLQ handler failed"]
    assert said["log_level"] == "error"
    assert said["message_id"] == rig.kept()[0].head.message_id
    assert said["error"] == "nobody is there"


def test_a_dead_letter_is_never_dead_lettered_again(timed: Rig, clock: FakeClock) -> None:
    timed.bury(a=NO)
    for _ in range(20):
        DLQConsumer(mailbox=timed.dead, handler=refuse).run(max_iterations=1, wait_time_seconds=0)
        clock.advance(3600)

    assert len(timed.seen(LetterRefused)) == 20
    assert timed.dead.approximate_count() == 1
    assert len(timed.kept()) == 1
    names = [
        queue.options.name
        for queue in timed.backend.call(_queues(timed))
        if queue.options.name.endswith("-dlq")
    ]
    assert names == ["requests-dlq"]


async def _queues(rig: Rig) -> Any:
    return await (await rig.backend.broker()).queues()


def test_iterations_count_polls_and_not_letters(rig: Rig) -> None:
    rig.bury(**{f"r{number}": NO for number in range(12)})
    seen: list[DeadLetter[Any]] = []
    beats: list[int] = []
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=rig.dead, handler=seen.append)

    consumer.run(max_iterations=1, wait_time_seconds=0)
    assert len(seen) == 10
    consumer.heartbeat.add_callback(lambda: beats.append(1))
    consumer.run(max_iterations=1, wait_time_seconds=0)

    assert len(seen) == 12
    assert len(beats) == 3  # of the turn, and of each of its letters


@pytest.mark.parametrize("turns", [1, 3])
def test_every_iteration_beats_the_heart_once(timed: Rig, turns: int) -> None:
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=timed.dead, handler=print)
    beats: list[int] = []
    consumer.heartbeat.add_callback(lambda: beats.append(1))

    consumer.run(max_iterations=turns, wait_time_seconds=0)

    assert len(beats) == turns


def test_a_poll_waits_twenty_seconds_for_the_first_letter(timed: Rig) -> None:
    engine: Any = timed.backend.call(timed.backend.engine())
    notes: list[str] = []
    engine.broker = BrokerRecorder(engine.broker, notes)
    timed.dead.send("anything")  # type: ignore[arg-type]

    DLQConsumer(mailbox=timed.dead, handler=print).run(max_iterations=1)

    (asked,) = [note for note in notes if note.startswith("asked requests-dlq")]
    assert asked.endswith(", 20 s")


@pytest.mark.parametrize(("asked", "lease"), [({}, 300), ({"visibility_timeout": 7}, 7)])
def test_the_visibility_timeout_of_run_defaults_to_that_of_the_consumer(
    timed: Rig, asked: dict[str, Any], lease: int
) -> None:
    engine: Any = timed.backend.call(timed.backend.engine())
    notes: list[str] = []
    engine.broker = BrokerRecorder(engine.broker, notes)
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=timed.dead, handler=print)
    timed.dead.send("anything")  # type: ignore[arg-type]

    consumer.run(max_iterations=1, **asked)

    assert f"asked requests-dlq for {lease} s, 20 s" in notes  # a long poll


def test_a_visibility_timeout_of_zero_is_not_unset(timed: Rig) -> None:
    engine: Any = timed.backend.call(timed.backend.engine())
    notes: list[str] = []
    engine.broker = BrokerRecorder(engine.broker, notes)

    DLQConsumer(mailbox=timed.dead, handler=print).run(
        max_iterations=1, visibility_timeout=0, wait_time_seconds=0
    )

    assert "asked requests-dlq for 0 s, 0 s" in notes


def test_the_consumer_runs_until_shutdown_and_reports_whether_it_ended(rig: Rig) -> None:
    rig.bury(a=NO)
    begun, may_go = threading.Event(), threading.Event()

    def handle(letter: DeadLetter[Any]) -> None:
        begun.set()
        may_go.wait(20)

    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=rig.dead, handler=handle)
    thread = threading.Thread(target=consumer.run, kwargs={"wait_time_seconds": 0.1})
    thread.start()
    assert begun.wait(20)
    assert consumer.running

    assert consumer.shutdown(timeout=0.1) is False
    may_go.set()
    assert consumer.shutdown(timeout=20) is True

    thread.join(20)
    assert not consumer.running
    assert rig.dead.approximate_count() == 0  # the letter in hand was finished


@pytest.mark.parametrize(
    ("handler", "action"),
    [
        (lambda letter: "discard", "discard"),
        (lambda letter: "replay", "replay"),
        (Alert(), "alert"),
        (lambda letter: None, None),
        (lambda letter: "something else", None),
    ],
)
def test_handling_is_logged_with_age_and_action(
    timed: Rig, clock: FakeClock, handler: Handler, action: str | None
) -> None:
    timed.observers.append(Telemetry())
    timed.bury(a=NO)
    clock.advance(40)

    with structlog.testing.capture_logs() as lines:
        DLQConsumer(mailbox=timed.dead, handler=handler).run(max_iterations=1, wait_time_seconds=0)

    (said,) = [line for line in lines if line["event"] == "Processing dead letter"]
    head = timed.kept()[0].head
    assert said["log_level"] == "info"
    assert said["message_id"] == head.message_id
    assert said["request_id"] == head.business_key
    assert (said["age_seconds"], said.get("action")) == (40, action)


def test_each_letter_has_the_action_of_its_own_handling(timed: Rig) -> None:
    timed.bury(usual=NO, urgent=NO, other=NO)
    alert = Alert()

    def handle(letter: DeadLetter[Any]) -> object:
        return alert(letter) if letter.body.request == "urgent" else None

    DLQConsumer(mailbox=timed.dead, handler=handle).run(max_iterations=1, wait_time_seconds=0)

    assert [event.action for event in timed.seen(LetterHandled)] == [
        "processed",
        "alerted",
        "processed",
    ]


def test_consumers_discard_expired_letters_and_the_office_keeps_them(
    timed: Rig, clock: FakeClock
) -> None:
    thirty_days: Any = timed.box("requests-dlq", DeadLetter[Any], default_ttl=2_592_000)
    timed.bury(old=NO)
    clock.advance(2_592_000 - 60)
    timed.bury(new=NO)
    clock.advance(120)
    seen: list[str] = []

    DLQConsumer[Any](
        mailbox=thirty_days, handler=lambda letter: seen.append(letter.message_id)
    ).run(max_iterations=1, wait_time_seconds=0)

    assert len(seen) == 1  # each by its own clock
    assert [event.action for event in timed.seen(LetterHandled)] == ["discarded", "processed"]
    assert timed.dead.approximate_count() == 0
    assert len(timed.kept()) == 2


def test_retention_discards_expired_letters_and_deletes_finished_ones(
    timed: Rig, clock: FakeClock
) -> None:
    box: Any = timed.box("requests-dlq", DeadLetter[MainLoopRequest[str]], default_ttl=2_592_000)
    timed.bury(**{f"old{number}": NO for number in range(12)})
    clock.advance(2_592_000 - 60)
    timed.bury(new=NO)
    assert discard_expired(box) == 0
    clock.advance(120)

    assert discard_expired(box) == 12

    (left,) = box.receive(max_messages=10)
    assert left.body.body.request == "new"
    assert delete_finished(timed.backend) == 0  # nobody has dealt with them
    new, *old = timed.kept()
    assert len(old) == 12
    closed = [letter.id for letter in old[:3]]
    timed.backend.call(_close(timed, closed))
    assert delete_finished(timed.backend) == 3
    assert {letter.id for letter in timed.kept()} == {letter.id for letter in (new, *old[3:])}


def test_retention_runs_by_itself_beside_the_loops(timed: Rig, clock: FakeClock) -> None:
    box: Any = timed.box("requests-dlq", DeadLetter[MainLoopRequest[str]], default_ttl=2_592_000)
    timed.bury(old=NO)
    clock.advance(2_592_000 + 1)
    timed.bury(new=NO)
    retention = RetentionLoop(timed.backend, box, every=0.05)
    with running(timed.loop(upper), background=[retention]):
        until(lambda: box.approximate_count() == 1)

    (left,) = box.receive(max_messages=10)
    assert left.body.body.request == "new"
    assert len(timed.kept()) == 2  # nobody has dealt with them


def test_retention_goes_on_after_a_failure(timed: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [MailboxConnectionError("away")]

    def discard(*boxes: Any) -> int:
        if failures:
            raise failures.pop()
        return discard_expired(*boxes)

    monkeypatch.setattr("agents.retention.discard_expired", discard)
    retention = RetentionLoop(timed.backend, timed.dead, every=0.05)
    loop = timed.loop(upper)
    with structlog.testing.capture_logs() as lines, running(loop, background=[retention]):
        until(lambda: [line for line in lines if line["event"] == "Retention failed"])
        until(lambda: not failures and retention.ready() is None)
    assert [line["error"] for line in lines if line["event"] == "Retention failed"] == ["away"]


def test_retention_does_not_charge_the_letters_that_stay(rig: Rig) -> None:
    rig.bury(a=NO, b=NO)
    box: Any = rig.box("requests-dlq", DeadLetter[MainLoopRequest[str]], default_ttl=2_592_000)

    for _ in range(3):
        assert discard_expired(box) == 0

    charged = rig.backend.call(_charged(rig))
    assert charged == {"a": 1, "b": 1}


async def _charged(rig: Rig) -> dict[str, int]:
    source = (await rig.backend.broker()).source("requests-dlq")
    found = await source.receive(limit=10, wait=5, lease=30)
    return {rig.dead.decode_dead(one.message.body).request: one.charged for one in found}


async def _close(rig: Rig, ids: list[str]) -> None:
    await Letters(await rig.backend.letters(), rig.backend.clock).close(ids, By("somebody"))


def test_a_safe_handler_never_raises_but_logs_discards_and_counts(rig: Rig) -> None:
    telemetry = Telemetry()
    rig.observers.append(telemetry)
    rig.bury(a=NO)
    with structlog.testing.capture_logs() as lines:
        DLQConsumer(mailbox=rig.dead, handler=safe(refuse)).run(
            max_iterations=1, wait_time_seconds=5
        )

    (line,) = [line for line in lines if line["event"].startswith("Failed to process dead letter")]
    assert line["event"] == "Failed to process dead letter, discarding"
    assert line["log_level"] == "error"
    assert line["message_id"] == rig.kept()[0].head.message_id
    assert line["error"] == "nobody is there"
    assert rig.seen(LetterRefused) == []
    assert rig.dead.approximate_count() == 0
    discarded = telemetry.registry.get_sample_value(
        "dlq_messages_discarded_total", {"mailbox": "requests-dlq"}
    )
    assert discarded == 1


class Alarm:
    """Two letters, one of them critical, and what an alert made of them."""

    def __init__(self, rig: Rig) -> None:
        self.telemetry, self.pages = Telemetry(), list[tuple[str, str]]()
        alert = Alert(
            self.telemetry,
            is_critical=lambda letter: letter.body.request == "urgent",
            page=lambda summary, severity: self.pages.append((summary, severity)),
        )
        rig.bury(usual=NO, urgent=ConnectionError("away"))
        with structlog.testing.capture_logs() as lines:
            DLQConsumer(mailbox=rig.dead, handler=alert).run(max_iterations=1, wait_time_seconds=5)
        self.lines = [line for line in lines if line["event"] == "Request dead-lettered"]
        self.heads = {letter.head.message_id: letter.head for letter in rig.kept()}


@pytest.fixture
def alarm(rig: Rig) -> Alarm:
    return Alarm(rig)


def test_an_alert_logs_each_letter_as_an_error(alarm: Alarm) -> None:
    assert len(alarm.lines) == 2
    for line in alarm.lines:
        head = alarm.heads[line["message_id"]]
        assert line["log_level"] == "error"
        assert line["request_id"] == head.business_key
        assert line["error_type"] == f"builtins.{head.error_type}"
        assert line["error"] == head.error_text
        assert (line["delivery_count"], line["source"]) == (1, "requests")


def test_an_alert_counts_letters_by_source_and_error_type(alarm: Alarm) -> None:
    for name in ("LookupError", "ConnectionError"):
        labels = {"source": "requests", "error_type": f"builtins.{name}"}
        counted = alarm.telemetry.registry.get_sample_value("dlq_messages_total", labels)
        assert counted == 1


def test_an_alert_pages_with_high_severity_for_critical_requests(alarm: Alarm) -> None:
    (urgent,) = [head for head in alarm.heads.values() if head.error_text == "away"]
    assert alarm.pages == [(f"Critical request dead-lettered: {urgent.business_key}", "high")]


def test_the_consumer_runs_beside_the_loop_of_its_letters(rig: Rig) -> None:
    def adapter(prompt: str, session: object) -> str:
        raise NO

    seen: list[DeadLetter[Any]] = []
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=rig.dead, handler=seen.append)
    loop = rig.loop(adapter, dlq=rig.policy(max_delivery_count=2))
    with running(loop, consumer):
        rig.ask("hello")
        until(lambda: seen)
        assert loop.running
        assert consumer.running

    assert seen[0].body.request == "hello"
