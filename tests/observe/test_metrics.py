"""Events as metrics, under names and labels that stay few."""

from typing import get_args

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deadletter.core.brake import BrakeKind
from deadletter.core.events import (
    Alerted,
    AlertFailed,
    Anchored,
    AnyEvent,
    BackInReach,
    BrakeClosed,
    BrakeOpened,
    Buried,
    Event,
    FailedForGood,
    HandlerNoted,
    HandlerStuck,
    LeaseLost,
    LetterHandled,
    LetterRefused,
    LoopDied,
    OutOfReach,
    Received,
    ReplyFailed,
    Retried,
    Stalled,
    Succeeded,
    SuspectsFound,
    WorkerStarted,
    WorkerStopped,
)
from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.observe.metrics import Metrics


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry)


def failure(error_type: str = "builtins.TimeoutError") -> Failure:
    return Failure(trouble=Trouble.TRANSIENT, code="TIMEOUT", error_type=error_type, text="no")


def buried(
    error_type: str = "builtins.TimeoutError", mailbox: str = "orders", seconds: float = 0.0
) -> Event:
    return Buried(
        mailbox=mailbox,
        message_id="m",
        letter_id="l",
        attempt=5,
        reason=Reason.ATTEMPTS_EXHAUSTED,
        text="failed 5 of 5 attempts",
        failure=failure(error_type),
        consumer="charge",
        seconds=seconds,
    )


def retried(*, charged: bool, seconds: float = 0.0) -> Event:
    return Retried(
        mailbox="orders",
        message_id="m",
        attempt=1,
        delay=1.0,
        charged=charged,
        failure=failure(),
        seconds=seconds,
    )


def failed(seconds: float = 0.0) -> Event:
    return FailedForGood(
        mailbox="orders", message_id="m", attempt=1, text="no", failure=failure(), seconds=seconds
    )


def test_burials_are_counted_by_source_consumer_reason_and_error(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    metrics(buried())
    metrics(buried())

    labels = {
        "source": "orders",
        "consumer": "charge",
        "reason": "attempts-exhausted",
        "error_type": "builtins.TimeoutError",
    }
    name = "dlq_messages_dead_lettered_total"
    assert registry.get_sample_value(name, labels) == 2


def test_attempts_are_counted_by_how_they_ended(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    for event in [
        Succeeded(mailbox="orders", message_id="m", attempt=1, seconds=0.2),
        retried(charged=True),
        retried(charged=False),
        buried(),
        failed(),
        LeaseLost(mailbox="orders", message_id="m", attempt=1),
    ]:
        metrics(event)

    for outcome in ["succeeded", "retried", "spared", "buried", "failed", "lost"]:
        labels = {"mailbox": "orders", "outcome": outcome}
        assert registry.get_sample_value("dlq_attempts_total", labels) == 1, outcome


def test_errors_are_counted_by_their_classification_r0_113(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    metrics(retried(charged=True))
    metrics(buried())

    labels = {"mailbox": "orders", "category": "RETRYABLE", "trouble": "transient"}
    assert registry.get_sample_value("dlq_errors_total", labels) == 2


def test_handlers_are_timed_however_they_end(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics(Succeeded(mailbox="orders", message_id="m", attempt=1, seconds=0.25))
    metrics(retried(charged=True, seconds=900.0))
    metrics(retried(charged=False, seconds=2.0))
    metrics(buried(seconds=3.0))
    metrics(failed(seconds=4.0))

    taken = {
        outcome: registry.get_sample_value(
            "dlq_handler_duration_seconds_sum", {"mailbox": "orders", "outcome": outcome}
        )
        for outcome in ("succeeded", "retried", "spared", "buried", "failed")
    }
    assert taken == {"succeeded": 0.25, "retried": 900, "spared": 2, "buried": 3, "failed": 4}


def test_deliveries_without_a_handler_run_are_not_timed(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    metrics(buried())  # by the sweep: its worker died

    assert b"dlq_handler_duration_seconds_count{" not in generate_latest(registry)


def test_dlq_consumers_are_counted_and_timed_r3_77_to_r3_82(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    for action in ["processed", "replayed", "discarded", "hostile\nlabel"]:
        metrics(
            LetterHandled(mailbox="orders-dlq", letter_id="l", seconds=2, age=100, action=action)
        )
    metrics(LetterRefused(mailbox="orders-dlq", letter_id="l", delay=3600, failure=failure()))

    for action in ["processed", "replayed", "discarded", "refused", "other"]:
        labels = {"mailbox": "orders-dlq", "action": action}
        name = "dlq_messages_processed_total"
        assert registry.get_sample_value(name, labels) == 1, action
    box = {"mailbox": "orders-dlq"}
    assert registry.get_sample_value("dlq_message_age_seconds_sum", box) == 400
    assert registry.get_sample_value("dlq_processing_duration_seconds_sum", box) == 8


def test_the_brake_shows(metrics: Metrics, registry: CollectorRegistry) -> None:
    labels = {"mailbox": "orders"}

    kind = BrakeKind.SYSTEMIC
    metrics(BrakeOpened(mailbox="orders", text="all fail", kind=kind, cause="KeyError"))
    opened = registry.get_sample_value("dlq_breaker_state", labels)
    metrics(BrakeClosed(mailbox="orders", seconds=3.0, kind=kind, held=7))
    closed = registry.get_sample_value("dlq_breaker_state", labels)

    assert (opened, closed) == (1, 0)
    openings = labels | {"kind": "systemic"}
    assert registry.get_sample_value("dlq_brake_openings_total", openings) == 1
    assert registry.get_sample_value("dlq_messages_held_total", labels) == 7


def test_unreachable_parts_are_shown_until_they_are_back(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    labels = {"mailbox": "orders", "what": "office"}

    metrics(OutOfReach(mailbox="orders", what="office", text="locked", tries=1))
    gone = registry.get_sample_value("dlq_out_of_reach", labels)
    metrics(BackInReach(mailbox="orders", what="office", seconds=3.0))
    back = registry.get_sample_value("dlq_out_of_reach", labels)

    assert (gone, back) == (1, 0)


def test_an_office_that_cannot_keep_a_letter_is_to_be_paged_on(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    for what in ["office", "letter abc", "broker"]:
        metrics(OutOfReach(mailbox="orders", what=what, text="locked", tries=1))

    assert registry.get_sample_value("dlq_dead_letter_failures_total") == 2
    stuck = {"mailbox": "orders", "what": "letter"}
    assert registry.get_sample_value("dlq_out_of_reach", stuck) is None


@pytest.mark.parametrize(
    ("event", "kind", "count"),
    [
        (LeaseLost(mailbox="o", message_id="m", attempt=1), "lease-lost", 1),
        (HandlerStuck(mailbox="o", message_id="m", seconds=900), "handler-stuck", 1),
        (SuspectsFound(mailbox="o", lost=7), "suspects-found", 7),
        (ReplyFailed(mailbox="o", message_id="m", reply_to="r", text="no"), "reply-failed", 1),
        (LoopDied(mailbox="", loop="sweep", text="no"), "loop-died", 1),
        (Stalled(mailbox="", loop="sweep", seconds=720), "stalled", 1),
    ],
)
def test_mishaps_are_counted(
    metrics: Metrics, registry: CollectorRegistry, event: Event, kind: str, count: int
) -> None:
    metrics(event)

    value = registry.get_sample_value("dlq_mishaps_total", {"kind": kind})
    assert value == count


def test_hostile_names_do_not_explode_the_series_s26(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    for n in range(100_000):
        metrics(buried(error_type=f"evil.Error{n}"))

    series = [line for line in generate_latest(registry).splitlines() if line[:1] != b"#"]
    assert len(series) < 2000
    labels = {
        "source": "orders",
        "consumer": "charge",
        "reason": "attempts-exhausted",
        "error_type": "other",
    }
    name = "dlq_messages_dead_lettered_total"
    assert registry.get_sample_value(name, labels) == 100_000 - 200


def test_combinations_of_allowed_labels_are_bounded(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    for n in range(20_000):
        metrics(buried(error_type=f"evil.Error{n % 150}", mailbox=f"box-{n // 150}"))

    name = b"dlq_messages_dead_lettered_total{"
    series = [line for line in generate_latest(registry).splitlines() if line.startswith(name)]
    assert 1_000 < len(series) <= 1_000 + 200
    counted = sum(float(line.rpartition(b" ")[2]) for line in series)
    assert counted == 20_000


def test_deaths_are_counted_under_the_other_names_too_r1_49_r3_76(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    metrics(buried())
    metrics(buried(mailbox="mails"))

    for name, label in [
        ("pipestream_dlq_messages_total", "node_id"),
        ("dlq_messages_sent_total", "mailbox"),
    ]:
        assert registry.get_sample_value(name, {label: "orders"}) == 1
        assert registry.get_sample_value(name, {label: "mails"}) == 1


def test_deaths_in_a_node_go_by_its_own_id_r1_49(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    node = "0198f3a2-5a1e-7c33-9d55-0c1c6a4e7b10"
    metrics(buried(mailbox=f"prod.{node}"))

    name = "pipestream_dlq_messages_total"
    assert registry.get_sample_value(name, {"node_id": node}) == 1


def test_dlq_consumers_are_counted_under_the_other_names_too_r3_78_to_r3_82(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    for action in ["processed", "replayed", "replayed", "discarded"]:
        metrics(
            LetterHandled(mailbox="orders-dlq", letter_id="l", seconds=2, age=100, action=action)
        )

    box = {"mailbox": "orders-dlq"}
    assert registry.get_sample_value("dlq_messages_replayed_total", box) == 2
    assert registry.get_sample_value("dlq_messages_discarded_total", box) == 1
    assert registry.get_sample_value("dlq_processing_duration_ms_sum", box) == 8_000
    assert registry.get_sample_value("dlq_message_age_seconds_sum", box) == 400


def test_alerts_are_counted_by_whether_people_were_told(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    metrics(Alerted(mailbox="", target="slack", alerts=3))
    metrics(AlertFailed(mailbox="", target="email", alerts=2, text="refused"))

    told = {"target": "slack", "outcome": "told"}
    failed = {"target": "email", "outcome": "failed"}
    assert registry.get_sample_value("dlq_alerts_total", told) == 3
    assert registry.get_sample_value("dlq_alerts_total", failed) == 2


def test_more_mailboxes_than_labels_are_still_counted(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    for n in range(300):
        metrics(Received(mailbox=f"box-{n}", count=2))

    received = {"mailbox": "other"}
    assert registry.get_sample_value("dlq_messages_received_total", received) == 200


def test_no_event_is_forgotten_but_those_that_need_no_metric(metrics: Metrics) -> None:
    unmeasured = {Anchored, HandlerNoted, WorkerStarted, WorkerStopped}
    assert set(get_args(AnyEvent)) - set(metrics._on) == unmeasured


def test_an_event_without_a_metric_is_no_error(metrics: Metrics) -> None:
    metrics(WorkerStarted(mailbox="orders", slots=1))
