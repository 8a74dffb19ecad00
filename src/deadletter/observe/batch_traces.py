"""
Receiving and settling as OpenTelemetry spans, one for each batch.

A fetch that finds nothing is no span: an idle worker makes many. Each span links to
the spans its messages were sent in, as far as they are known.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import (
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
)

from deadletter.core.errors import BackendError
from deadletter.core.message import Delivery
from deadletter.core.raised import qualified_name
from deadletter.core.tracing import span_of
from deadletter.ports import Clock, Features, Settlement, Source

from .lines import line

MOST_LINKS: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TracedSource:
    """A source whose batches are spans."""

    def __init__(
        self, source: Source, tracer: Tracer, *, system: str, clock: Clock
    ) -> None:
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
        """As the source does."""
        began = self._clock.now()
        try:
            received = await self._source.receive(
                limit=limit, wait=wait, lease=lease, alone=alone
            )
        except BackendError as error:
            self._tell("receive", began, (), error)
            raise
        if received:
            self._tell("receive", began, received)
        return received

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """As the source does."""
        began = self._clock.now()
        settled = [one.delivery for one in settlements]
        try:
            ours = await self._source.settle(settlements)
        except BackendError as error:
            self._tell("settle", began, settled, error)
            raise
        self._tell("settle", began, settled)
        return ours

    def _tell(
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
    """Say of what type an error was; its text may hold what is in a message."""
    name = line(qualified_name(type(error)))
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, name))


def context_of(traceparent: str | None) -> SpanContext | None:
    """The span that a `traceparent` names; None when it is not one."""
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
