"""Events as OpenTelemetry metrics, read back through the SDK."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from deadletter.core.events import LetterHandled, LetterRefused, Received, Succeeded, WorkerStarted
from deadletter.core.letter import State
from deadletter.observe.telemetry import DESTINATION, Meters
from observe.test_metrics import buried, failed, failure, retried


class Readings:
    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def __call__(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def readings() -> Readings:
    return Readings()


@pytest.fixture
def meters(readings: Readings) -> Meters:
    return Meters(readings.provider, system="sqlite")


def test_metrics_of_claims_and_handling_use_conventional_names(
    meters: Meters, readings: Readings
) -> None:
    meters(Received(mailbox="orders", count=7))
    meters(Succeeded(mailbox="orders", message_id="m", attempt=1, seconds=0.25))

    [consumed] = readings("messaging.client.consumed.messages")
    [process] = readings("messaging.process.duration")
    assert consumed.value == 7
    assert dict(consumed.attributes) == {
        "messaging.system": "sqlite",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
    }
    assert (process.count, process.sum) == (1, 0.25)


def test_the_seven_of_the_mailbox_system_r3_76_to_r3_82(meters: Meters, readings: Readings) -> None:
    meters(buried())
    for action in ["processed", "replayed", "replayed", "discarded"]:
        meters(
            LetterHandled(mailbox="orders-dlq", letter_id="l", seconds=2, age=100, action=action)
        )
    meters.show_letters({"orders": {State.PENDING: 3, State.QUARANTINED: 1, State.CLOSED: 9}})

    assert [p.value for p in readings("dlq.messages.sent")] == [1]
    assert sum(p.value for p in readings("dlq.messages.processed")) == 4
    assert [p.value for p in readings("dlq.messages.replayed")] == [2]
    assert [p.value for p in readings("dlq.messages.discarded")] == [1]
    assert [p.value for p in readings("dlq.queue.depth")] == [4]
    [age] = readings("dlq.message.age_seconds")
    [duration] = readings("dlq.processing.duration_ms")
    assert (age.count, age.sum) == (4, 400)
    assert (duration.count, duration.sum) == (4, 8_000)


def test_errors_are_counted_by_their_classification_r0_113(
    meters: Meters, readings: Readings
) -> None:
    meters(retried(charged=True))
    meters(failed())
    meters(LetterRefused(mailbox="orders", letter_id="l", delay=1, failure=failure()))

    [errors] = readings("dlq.errors")
    assert errors.value == 3
    assert errors.attributes["dlq.category"] == "RETRYABLE"
    assert errors.attributes["dlq.trouble"] == "transient"


def test_failed_attempts_are_timed_too_by_their_error(meters: Meters, readings: Readings) -> None:
    meters(Succeeded(mailbox="orders", message_id="m", attempt=1, seconds=0.25))
    meters(retried(charged=True, seconds=900.0))
    meters(buried(seconds=1.0))
    meters(buried())  # by the sweep: no handler was run
    meters(failed(seconds=2.0))

    taken = {
        point.attributes.get("error.type"): (point.count, point.sum)
        for point in readings("messaging.process.duration")
    }
    assert taken == {None: (1, 0.25), "builtins.TimeoutError": (3, 903)}


def test_a_drained_mailbox_falls_to_zero(meters: Meters, readings: Readings) -> None:
    meters.show_letters({"orders": {State.PENDING: 3}})
    meters.show_letters({})

    assert [p.value for p in readings("dlq.queue.depth")] == [0]


def test_countless_names_make_few_series(meters: Meters, readings: Readings) -> None:
    for number in range(1_000):
        meters(buried(error_type=f"evil.Error{number}"))
        meters(Received(mailbox=f"box-{number}", count=1))

    sent = readings("dlq.messages.sent")
    assert len(sent) <= 201
    assert sum(point.value for point in sent) == 1_000
    boxes = readings("messaging.client.consumed.messages")
    assert len({point.attributes[DESTINATION] for point in boxes}) <= 201


def test_an_event_without_a_meter_is_no_error(meters: Meters) -> None:
    meters(WorkerStarted(mailbox="orders", slots=1))
