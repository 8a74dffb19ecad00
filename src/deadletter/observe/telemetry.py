"""
Sending as OpenTelemetry spans and metrics.

    app = App("sqlite:///shop.db", sending=traced_sending(system="sqlite"))

Each call that sends is a span of the current trace, and the messages carry that span, so their
processing belongs to the same trace. A message with its own `traceparent` keeps it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import structs
from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import SpanKind, TracerProvider

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
from deadletter.core.failure.clues import qualified_name
from deadletter.core.letter import State, still_open
from deadletter.core.message import Message
from deadletter.ports import Clock, Sink

from .logs import line
from .metrics import OTHER, Capped
from .traces import carried, failed

# Only the API is used: the SDK of the application decides where the numbers are sent.

DESTINATION: Final = "messaging.destination.name"
ERROR: Final = "error.type"


class Meters:
    """An observer that counts and times events for OpenTelemetry."""

    def __init__(
        self, provider: MeterProvider | None = None, *, system: str = "deadletter"
    ) -> None:
        meter = metrics.get_meter("deadletter", meter_provider=provider)
        counter = meter.create_counter
        self._system = system
        self._consumed = counter("messaging.client.consumed.messages", "{message}")
        self._process = meter.create_histogram("messaging.process.duration", "s")
        self._sent = counter("dlq.messages.sent", "{message}", "Messages that became dead letters.")
        self._processed = counter(
            "dlq.messages.processed", "{message}", "Letters DLQ consumers took."
        )
        self._replayed = counter(
            "dlq.messages.replayed", "{message}", "Letters DLQ consumers sent back."
        )
        self._discarded = counter(
            "dlq.messages.discarded", "{message}", "Letters DLQ consumers discarded."
        )
        self._errors = counter("dlq.errors", "{error}", "Errors, by how they were classified.")
        self._ages = meter.create_histogram(
            "dlq.message.age_seconds", "s", "Time between death and a DLQ handler."
        )
        self._durations = meter.create_histogram(
            "dlq.processing.duration_ms", "ms", "Run time of DLQ handlers."
        )
        meter.create_observable_gauge("dlq.queue.depth", [self._observe_depth], "{message}")
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
        """Count an event."""
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def show_letters(self, counts: Mapping[str, Mapping[State, int]]) -> None:
        """Show the number of letters in each state, by source."""
        depths = dict.fromkeys(self._depths, 0)
        for source, states in counts.items():
            name = self._mailbox(source)
            depth = still_open(states)
            depths[name] = depths.get(name, 0) + depth
        self._depths = depths

    def _observe_depth(self, options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(depth, {DESTINATION: mailbox}) for mailbox, depth in self._depths.items()
        ]

    def _on_received(self, event: Received) -> None:
        self._consumed.add(event.count, self._where(event, "receive"))

    def _on_succeeded(self, event: Succeeded) -> None:
        self._process.record(event.seconds, self._where(event, "process"))

    def _on_failed_attempt(self, event: Retried | Buried | FailedForGood) -> None:
        self._on_failure(event, event.failure)
        if event.seconds > 0:  # else no handler ran, for example after a lost worker
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


_NAME: Final = "deadletter"


def traced_sending(
    tracers: TracerProvider | None = None,
    meters: MeterProvider | None = None,
    *,
    system: str = "deadletter",
) -> "TracedSending":
    """
    Return the wrapper of an App's sinks that records spans and metrics.

    Without providers the global ones are used; `system` names the broker.
    """
    return TracedSending(tracers, meters, system)


class TracedSending:
    """A wrapper of sinks that makes each call a span."""

    def __init__(
        self, tracers: TracerProvider | None, meters: MeterProvider | None, system: str
    ) -> None:
        self.tracer = trace.get_tracer(_NAME, tracer_provider=tracers)
        meter = metrics.get_meter(_NAME, meter_provider=meters)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages sent, successfully or not."
        )
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Time sending took."
        )
        self._system = system
        self._mailbox, self._error_type = Capped(), Capped()

    def __call__(self, sink: Sink, clock: Clock) -> Sink:
        """Return the sink with a span for each call."""
        return TracedSink(sink, self, clock)

    def where(self, mailbox: str) -> dict[str, str]:
        """Return the attributes of every call."""
        return {
            "messaging.system": self._system,
            DESTINATION: mailbox,
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }

    def count(
        self, mailbox: str, messages: int, seconds: float, error: BaseException | None
    ) -> None:
        """Count a call, however it ended."""
        attributes = self.where(self._mailbox(mailbox))
        if error is not None:
            attributes[ERROR] = self._error_type(qualified_name(type(error)))
        self._sent.add(messages, attributes)
        self._duration.record(seconds, attributes)


class TracedSink:
    """A sink whose calls are spans."""

    def __init__(self, sink: Sink, sending: TracedSending, clock: Clock) -> None:
        self.mailbox = sink.mailbox
        self._sink = sink
        self._sending = sending
        self._clock = clock

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send through the wrapped sink, in a span."""
        mailbox = line(self.mailbox)
        with self._sending.tracer.start_as_current_span(
            f"send {mailbox}",
            kind=SpanKind.PRODUCER,
            attributes={**self._sending.where(mailbox), **_of(messages)},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            began, error = self._clock.monotonic(), None
            try:
                await self._sink.send(_marked(messages), delay=delay)
            except BaseException as raised:
                error = raised
                failed(span, error)
                raise
            finally:
                seconds = self._clock.monotonic() - began
                self._sending.count(mailbox, len(messages), seconds, error)


def _of(messages: Sequence[Message]) -> dict[str, str | int]:
    if len(messages) != 1:
        return {"messaging.batch.message_count": len(messages)}
    return {
        "messaging.message.id": line(messages[0].id),
        "messaging.message.body.size": len(messages[0].body),
    }


def _marked(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with the current span, if there is one."""
    context = carried()
    if not context:
        return messages
    return [
        structs.replace(message, **context) if message.traceparent is None else message
        for message in messages
    ]
