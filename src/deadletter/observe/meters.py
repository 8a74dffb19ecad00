"""
Events as OpenTelemetry metrics: `messaging.*` as its conventions say, and `dlq.*`.

Only the API is used: where the numbers go is for the application's SDK to say.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from deadletter.core.events import (
    ACTIONS,
    Buried,
    Event,
    FailedForGood,
    LetterHandled,
    LetterRefused,
    Received,
    Retried,
    Succeeded,
)
from deadletter.core.failure import Failure
from deadletter.core.letter import State, still_open

from .labels import OTHER, Capped

DESTINATION: Final = "messaging.destination.name"
ERROR: Final = "error.type"


class Meters:
    """An observer that counts and times what happens, for OpenTelemetry."""

    def __init__(
        self, provider: MeterProvider | None = None, *, system: str = "deadletter"
    ) -> None:
        meter = metrics.get_meter("deadletter", meter_provider=provider)
        counter = meter.create_counter
        self._system = system
        self._consumed = counter("messaging.client.consumed.messages", "{message}")
        self._process = meter.create_histogram("messaging.process.duration", "s")
        self._sent = counter(
            "dlq.messages.sent", "{message}", "Messages that became dead letters."
        )
        self._processed = counter(
            "dlq.messages.processed", "{message}", "Letters DLQ consumers took."
        )
        self._replayed = counter(
            "dlq.messages.replayed", "{message}", "Letters DLQ consumers sent back."
        )
        self._discarded = counter(
            "dlq.messages.discarded", "{message}", "Letters DLQ consumers threw away."
        )
        self._errors = counter(
            "dlq.errors", "{error}", "Errors, by how they were classified."
        )
        self._ages = meter.create_histogram(
            "dlq.message.age_seconds", "s", "Time between death and a DLQ handler."
        )
        self._durations = meter.create_histogram(
            "dlq.processing.duration_ms", "ms", "Time DLQ handlers took."
        )
        meter.create_observable_gauge(
            "dlq.queue.depth", [self._observe_depth], "{message}"
        )
        self._mailbox, self._error_type = Capped(), Capped()
        self._depths: dict[str, int] = {}
        self._on: dict[type[Event], Callable[[Any], None]] = {
            Received: self._on_received,
            Succeeded: self._on_succeeded,
            Retried: self._on_failed_attempt,
            FailedForGood: self._on_failed_attempt,
            Buried: self._on_buried,
            LetterHandled: self._on_letter_handled,
            LetterRefused: lambda event: self._on_failure(event, event.failure),
        }

    def __call__(self, event: Event) -> None:
        """Count it in."""
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def show_letters(self, counts: Mapping[str, Mapping[State, int]]) -> None:
        """How many letters of each state there are now, by source."""
        depths = dict.fromkeys(self._depths, 0)
        for source, states in counts.items():
            name = self._mailbox(source)
            depth = still_open(states)
            depths[name] = depths.get(name, 0) + depth
        self._depths = depths

    def _observe_depth(self, options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(depth, {DESTINATION: mailbox})
            for mailbox, depth in self._depths.items()
        ]

    def _on_received(self, event: Received) -> None:
        self._consumed.add(event.count, self._where(event, "receive"))

    def _on_succeeded(self, event: Succeeded) -> None:
        self._process.record(event.seconds, self._where(event, "process"))

    def _on_failed_attempt(self, event: Retried | Buried | FailedForGood) -> None:
        self._on_failure(event, event.failure)
        if event.seconds > 0:  # else no handler was run: a worker was lost, say
            of_what = {ERROR: self._error_type(event.failure.error_type)}
            self._process.record(event.seconds, self._where(event, "process") | of_what)

    def _on_failure(self, event: Event, failure: Failure) -> None:
        self._errors.add(
            1,
            {
                **self._where(event, "process"),
                "dlq.category": failure.category.value,
                "dlq.trouble": failure.trouble.value,
            },
        )

    def _on_buried(self, event: Buried) -> None:
        self._on_failed_attempt(event)
        self._sent.add(
            1,
            {
                **self._where(event, "settle"),
                "dlq.reason": event.reason.value,
                ERROR: self._error_type(event.failure.error_type),
            },
        )

    def _on_letter_handled(self, event: LetterHandled) -> None:
        where = self._where(event, "process")
        action = event.action if event.action in ACTIONS else OTHER
        self._processed.add(1, {**where, "dlq.action": action})
        self._ages.record(event.age, where)
        self._durations.record(event.seconds * 1000, where)
        if action == "replayed":
            self._replayed.add(1, where)
        elif action == "discarded":
            self._discarded.add(1, where)

    def _where(self, event: Event, operation: str) -> dict[str, str]:
        return {
            "messaging.system": self._system,
            DESTINATION: self._mailbox(event.mailbox),
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
        }
