"""
Work as OpenTelemetry spans, and trace context that travels with messages.

    @app.handler("orders", middleware=[traced(letters=app.letters)])

Each received or settled batch is a span, and so is each attempt. The first delivery of a
message and its retries belong to the trace of its producer. A replayed copy starts a new
trace that *links* to the span that failed, because it may be sent days later by a person.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, TypeAlias

from opentelemetry import trace
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from deadletter.core.errors import BackendError, Signal
from deadletter.core.failure.clues import qualified_name
from deadletter.core.message import Delivery, Message, mark, span_of
from deadletter.ports import Clock, Features, LetterStore, Settlement, Source

from .logs import line

# A fetch without messages is not a span, because an idle worker makes many. Each span links
# to the spans in which its messages were sent, as far as they are known.

MOST_LINKS: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TracedSource:
    """A source whose batches are spans."""

    def __init__(self, source: Source, tracer: Tracer, *, system: str, clock: Clock) -> None:
        self.mailbox = source.mailbox
        self.features: Features = source.features
        self.extend = source.extend
        self._source = source
        self._tracer = tracer
        self._system = system
        self._clock = clock

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Receive from the wrapped source, and record a span if there are messages."""
        began = self._clock.now()
        try:
            received = await self._source.receive(limit=limit, wait=wait, lease=lease, alone=alone)
        except BackendError as error:
            self._record("receive", began, (), error)
            raise
        if received:
            self._record("receive", began, received)
        return received

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Settle in the wrapped source, and record a span."""
        began = self._clock.now()
        settled = [one.delivery for one in settlements]
        try:
            ours = await self._source.settle(settlements)
        except BackendError as error:
            self._record("settle", began, settled, error)
            raise
        self._record("settle", began, settled)
        return ours

    def _record(
        self,
        operation: str,
        began: datetime,
        batch: Sequence[Delivery],
        error: BackendError | None = None,
    ) -> None:
        mailbox = line(self.mailbox)
        span = self._tracer.start_span(
            f"{operation} {mailbox}",
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            kind=SpanKind.CLIENT,
            attributes={
                "messaging.system": self._system,
                "messaging.destination.name": mailbox,
                "messaging.operation.name": operation,
                "messaging.operation.type": operation,
                "messaging.batch.message_count": len(batch),
            },
            start_time=_nanoseconds(began),
        )
        if span.is_recording():
            _link(span, batch)
        if error is not None:
            failed(span, error)
        span.end(_nanoseconds(self._clock.now()))


def failed(span: Span, error: BaseException) -> None:
    """Record the type of an error; its text may contain parts of a message."""
    name = line(qualified_name(type(error)))
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, name))


def context_of(traceparent: str | None) -> SpanContext | None:
    """Return the span that a `traceparent` names; None if it is invalid."""
    span = span_of(traceparent)
    if span is None:
        return None
    return SpanContext(
        int(span.trace_id, 16),
        int(span.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(span.flags, 16)),
    )


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1_000


def _link(span: Span, batch: Iterable[Delivery]) -> None:
    sent = (context_of(one.message.traceparent) for one in batch)
    for context in islice(filter(None, sent), MOST_LINKS):
        span.add_link(context)


Handler: TypeAlias = Callable[[Delivery], Awaitable[object]]
Letters: TypeAlias = Callable[[], Awaitable[LetterStore]]

_NAME: Final = "deadletter"
_W3C: Final = TraceContextTextMapPropagator()


def traced(
    provider: TracerProvider | None = None,
    *,
    letters: Letters | None = None,
    system: str = "deadletter",
) -> "Traced":
    """
    Return middleware that runs every attempt in a span, and makes spans of batches.

    With `letters` (an App's method of that name), a replayed copy links to the attempt that
    failed last. Without it, or if the office does not answer, it links to the span its message
    was sent in. `system` names the broker.
    """
    tracer = trace.get_tracer(_NAME, tracer_provider=provider)
    return Traced(tracer, letters, system)


class Traced:
    """A wrapper of a handler and its source."""

    def __init__(self, tracer: Tracer, letters: Letters | None, system: str) -> None:
        self._tracer = tracer
        self._letters = letters
        self._system = system

    def around(self, source: Source, clock: Clock) -> Source:
        """Return the source with a span for each batch."""
        return TracedSource(source, self._tracer, system=self._system, clock=clock)

    def __call__(self, handler: Handler) -> Handler:
        """Return the handler with a span for each attempt."""

        async def attempt(delivery: Delivery) -> object:
            message = delivery.message
            is_replay = message.lineage is not None
            with self._tracer.start_as_current_span(
                f"process {line(delivery.mailbox)}",
                context=trace.set_span_in_context(trace.INVALID_SPAN)
                if is_replay
                else _W3C.extract(_carrier(message)),
                kind=SpanKind.CONSUMER,
                links=await _links(message, self._letters) if is_replay else (),
                attributes=_attributes(delivery, self._system),
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    return await handler(delivery)
                except Signal:
                    raise  # a signal of the handler is not an error
                except BaseException as error:
                    _failed(span, error)
                    raise

        return attempt


def carried() -> dict[str, str]:
    """
    Return the current trace context, for sending.

        await app.send("orders", order, **carried())
    """
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier


def _carrier(message: Message) -> dict[str, str]:
    carrier = {"traceparent": message.traceparent, "tracestate": message.tracestate}
    return {name: value for name, value in carrier.items() if value}


async def _links(message: Message, letters: Letters | None) -> list[Link]:
    failed_in = await _failed_span(message, letters)
    context = context_of(failed_in or message.traceparent)
    if context is None:
        return []
    return [Link(context, {"dlq.link": "failed" if failed_in else "sent"})]


async def _failed_span(message: Message, letters: Letters | None) -> str | None:
    if letters is None or message.lineage is None:
        return None
    try:
        found = await (await letters()).get([message.lineage.letter_id])
    except BackendError:
        return None  # the attempt must not fail because of a less exact trace
    story = found[0].story() if found else []
    return next((one.trace for one in reversed(story) if one.trace), None)


def _attributes(delivery: Delivery, system: str) -> dict[str, str | int]:
    message = delivery.message
    attributes: dict[str, str | int] = {
        "messaging.system": system,
        "messaging.destination.name": line(delivery.mailbox),
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": line(message.id),
        "messaging.message.body.size": len(message.body),
        "dlq.attempt": delivery.attempt,
    }
    if message.lineage is not None:
        attributes["dlq.letter.id"] = message.lineage.letter_id
        attributes["dlq.replay.campaign"] = message.lineage.campaign
        attributes["dlq.replay.generation"] = message.lineage.generation
    return attributes


def _failed(span: Span, error: BaseException) -> None:
    failed(span, error)  # its text is in the letter, redacted
    context = span.get_span_context()
    if context.is_valid:
        mark(error, _parent(context))


def _parent(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
