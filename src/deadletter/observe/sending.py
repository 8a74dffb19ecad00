"""
Sending as OpenTelemetry spans and numbers.

    app = App("sqlite:///shop.db", sending=traced_sending(system="sqlite"))

Each call that sends is a span of the trace it is made in, and the messages carry that
span along: what becomes of them belongs to the same trace. A message that was given
a `traceparent` of its own keeps it.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import structs
from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, TracerProvider

from deadletter.core.message import Message
from deadletter.core.raised import qualified_name
from deadletter.ports import Clock, Sink

from .batch_traces import failed
from .labels import Capped
from .lines import line
from .meters import DESTINATION, ERROR
from .traces import carried

_NAME: Final = "deadletter"


def traced_sending(
    tracers: TracerProvider | None = None,
    meters: MeterProvider | None = None,
    *,
    system: str = "deadletter",
) -> "TracedSending":
    """
    What an App sends through, to have spans and numbers of it.

    Without providers the global ones are used; `system` is what carries the messages.
    """
    return TracedSending(tracers, meters, system)


class TracedSending:
    """Goes around every sink."""

    def __init__(
        self,
        tracers: TracerProvider | None,
        meters: MeterProvider | None,
        system: str,
    ) -> None:
        self.tracer = trace.get_tracer(_NAME, tracer_provider=tracers)
        meter = metrics.get_meter(_NAME, meter_provider=meters)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages sent, or tried to."
        )
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Time sending took."
        )
        self._system = system
        self._mailbox, self._error_type = Capped(), Capped()

    def __call__(self, sink: Sink, clock: Clock) -> Sink:
        """The same sink, with a span for each call."""
        return TracedSink(sink, self, clock)

    def where(self, mailbox: str) -> dict[str, str]:
        """What is said of every call."""
        return {
            "messaging.system": self._system,
            DESTINATION: mailbox,
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }

    def count(
        self, mailbox: str, messages: int, seconds: float, error: BaseException | None
    ) -> None:
        """Count a call in, however it ended."""
        attributes = self.where(self._mailbox(mailbox))
        if error is not None:
            attributes[ERROR] = self._error_type(qualified_name(type(error)))
        self._sent.add(messages, attributes)
        self._duration.record(seconds, attributes)


class TracedSink:
    """A sink whose calls are spans, and counted."""

    def __init__(self, sink: Sink, sending: TracedSending, clock: Clock) -> None:
        self.mailbox = sink.mailbox
        self._sink = sink
        self._sending = sending
        self._clock = clock

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """As the sink does."""
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
    """The messages with the current span, if there is one."""
    context = carried()
    if not context:
        return messages
    return [
        structs.replace(message, **context) if message.traceparent is None else message
        for message in messages
    ]
