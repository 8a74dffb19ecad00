"""The seven metrics, measured on real letters."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agents import DeadLetter, DLQConsumer
from agents.replay import send_back
from agents.telemetry import Telemetry
from deadletter.testing.fakes import FakeClock
from systems.agents.rig import Rig
from systems.agents.test_replay import known

NO = LookupError("no such thing")


@pytest.fixture
def told(timed: Rig, clock: FakeClock) -> dict[str, Any]:
    """Return the metrics of four letters: replayed, discarded, alerted, and one left."""
    reader = InMemoryMetricReader()
    telemetry = Telemetry(provider=MeterProvider([reader]))
    telemetry.watch(timed.dead)
    timed.observers.append(telemetry)
    timed.bury(back=NO, away=NO, alert=NO)
    clock.advance(40)

    def handle(letter: DeadLetter[Any]) -> str:
        clock.advance(2)  # as long as it takes
        if letter.body.request == "back":
            send_back(letter, source=timed.requests, reply_resolver=known(timed))
            return "replay"
        return "discard" if letter.body.request == "away" else "alert"

    DLQConsumer(mailbox=timed.dead, handler=handle).run(max_iterations=1, wait_time_seconds=0)
    timed.requests.purge()
    timed.bury(left=NO)
    telemetry.depths()
    data: Any = reader.get_metrics_data()
    found = {
        metric.name: metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    return {**found, "registry": telemetry.registry}


def total(points: Any) -> float:
    return float(sum(point.value for point in points))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("dlq.messages.sent", 4),
        ("dlq.messages.processed", 3),
        ("dlq.messages.replayed", 1),
        ("dlq.messages.discarded", 1),
        ("dlq.queue.depth", 1),
    ],
    ids=["sent", "processed", "replayed", "discarded", "depth"],
)
def test_counters_and_the_depth(told: dict[str, Any], name: str, count: int) -> None:
    assert total(told[name]) == count


def test_how_old_letters_were_when_they_were_handled(told: dict[str, Any]) -> None:
    (ages,) = told["dlq.message.age_seconds"]

    assert (ages.count, ages.min, ages.max) == (3, 42, 46)


def test_how_long_handling_took_in_milliseconds(told: dict[str, Any]) -> None:
    (durations,) = told["dlq.processing.duration_ms"]

    assert (durations.count, durations.sum) == (3, 6000)


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("dlq_messages_sent_total", {"mailbox": "requests"}, 4),
        ("dlq_messages_processed_total", {"mailbox": "requests-dlq", "action": "alerted"}, 1),
        ("dlq_messages_replayed_total", {"mailbox": "requests-dlq"}, 1),
        ("dlq_messages_discarded_total", {"mailbox": "requests-dlq"}, 1),
        ("dlq_queue_depth", {"mailbox": "requests-dlq"}, 1),
        ("dlq_message_age_seconds_count", {"mailbox": "requests-dlq"}, 3),
        ("dlq_processing_duration_ms_sum", {"mailbox": "requests-dlq"}, 6000),
    ],
    ids=["sent", "processed", "replayed", "discarded", "depth", "age", "duration"],
)
def test_prometheus_has_them_with_underscores(
    told: dict[str, Any], name: str, labels: dict[str, str], value: float
) -> None:
    assert told["registry"].get_sample_value(name, labels) == value
