"""Sending as spans and numbers, read back through the SDK."""

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from deadletter import App
from deadletter.core.errors import Unavailable
from deadletter.core.message import Delivery, span_of
from deadletter.observe.telemetry import TracedSending, traced_sending
from deadletter.observe.traces import traced
from deadletter.sync import SyncApp
from deadletter.testing.fakes import eventually
from observe.test_meters import Readings
from observe.test_traces import PARENT, TRACE, Spans


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def readings() -> Readings:
    return Readings()


@pytest.fixture
def sending(spans: Spans, readings: Readings) -> TracedSending:
    return traced_sending(spans.provider, readings.provider, system="memory")


async def received(app: App, limit: int = 10) -> list[Delivery]:
    source = (await app.engine()).broker.source("orders")
    return list(await source.receive(limit=limit, wait=1, lease=10))


async def test_a_send_is_a_span_of_the_trace_it_is_called_in(
    spans: Spans, sending: TracedSending
) -> None:
    tracer = spans.provider.get_tracer("shop")
    async with App("memory://", sending=sending) as app:
        with tracer.start_as_current_span("checkout") as checkout:
            await app.send("orders", b"abc", id="m-1")
        [delivery] = await received(app)

    [span] = spans("send orders")
    assert span.kind is SpanKind.PRODUCER
    assert span.parent == checkout.get_span_context()
    assert dict(span.attributes or {}) == {
        "messaging.system": "memory",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.id": "m-1",
        "messaging.message.body.size": 3,
    }
    sent_in = span.get_span_context()
    assert sent_in is not None
    carried = span_of(delivery.message.traceparent)
    assert carried is not None
    assert int(carried.trace_id, 16) == sent_in.trace_id
    assert int(carried.span_id, 16) == sent_in.span_id


async def test_processing_spans_belong_to_the_trace_of_the_sender(
    spans: Spans, sending: TracedSending
) -> None:
    app = App("memory://", sending=sending)

    @app.handler("orders", middleware=[traced(spans.provider)])
    async def charge(order: bytes) -> None: ...

    stop = asyncio.Event()
    async with app:
        work = asyncio.create_task(app.work(stop))
        await app.send("orders", b"abc")
        await eventually(lambda: spans("process orders"))
        stop.set()
        await work

    [sent], [processed] = spans("send orders"), spans("process orders")
    assert sent.context is not None
    assert processed.context is not None
    assert processed.parent is not None
    assert processed.context.trace_id == sent.context.trace_id
    assert processed.parent.span_id == sent.context.span_id


async def test_a_trace_that_was_given_is_kept(sending: TracedSending) -> None:
    async with App("memory://", sending=sending) as app:
        await app.send("orders", b"abc", traceparent=PARENT, tracestate="shop=1")
        [delivery] = await received(app)

    assert delivery.message.traceparent == PARENT
    assert delivery.message.tracestate == "shop=1"


async def test_many_at_once_are_one_span(
    spans: Spans, sending: TracedSending, readings: Readings
) -> None:
    async with App("memory://", sending=sending) as app:
        await app.send_many("orders", [b"a", b"b", b"c"])
        deliveries = await received(app)

    [span] = spans("send orders")
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3
    assert len({one.message.traceparent for one in deliveries}) == 1
    assert deliveries[0].message.traceparent is not None
    [sent] = readings("messaging.client.sent.messages")
    assert sent.value == 3


async def test_sends_are_counted_and_timed(sending: TracedSending, readings: Readings) -> None:
    async with App("memory://", sending=sending) as app:
        await app.send("orders", b"a")
        await app.send("orders", b"b")

    [sent] = readings("messaging.client.sent.messages")
    [duration] = readings("messaging.client.operation.duration")
    said = {
        "messaging.system": "memory",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert (sent.value, dict(sent.attributes)) == (2, said)
    assert (duration.count, dict(duration.attributes)) == (2, said)
    assert duration.sum > 0


def test_without_awaiting_it_is_the_same_trace(spans: Spans, sending: TracedSending) -> None:
    tracer = spans.provider.get_tracer("shop")
    with (
        SyncApp(App("memory://", sending=sending)) as shop,
        tracer.start_as_current_span("view") as view,
    ):
        shop.send("orders", b"abc")

    [span] = spans("send orders")
    assert span.parent == view.get_span_context()


class Down:
    mailbox = "orders"

    async def send(self, messages: Any, *, delay: float = 0.0) -> None:
        raise Unavailable("password=hunter2")


async def test_a_send_that_fails_says_of_what_but_not_its_text(
    spans: Spans, sending: TracedSending, readings: Readings
) -> None:
    async with App("memory://") as app:
        app.sending = lambda sink, clock: sending(Down(), clock)
        with pytest.raises(Unavailable):
            await app.send("orders", b"a")

    [span] = spans("send orders")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "deadletter.core.errors.Unavailable"
    assert "hunter2" not in span.to_json()
    [sent] = readings("messaging.client.sent.messages")
    assert sent.attributes["error.type"] == "deadletter.core.errors.Unavailable"


async def test_without_an_sdk_nothing_is_put_into_a_message() -> None:
    async with App("memory://", sending=traced_sending()) as app:
        await app.send("orders", b"a")
        [delivery] = await received(app)

    assert delivery.message.traceparent is None


async def test_without_an_sdk_the_trace_it_is_called_in_still_travels() -> None:
    context = trace.SpanContext(TRACE, 0x00F067AA0BA902B7, True, trace.TraceFlags(1))
    async with App("memory://", sending=traced_sending()) as app:
        with trace.use_span(trace.NonRecordingSpan(context)):
            await app.send("orders", b"a")
        [delivery] = await received(app)

    assert delivery.message.traceparent == PARENT


async def test_countless_mailboxes_make_few_series(
    sending: TracedSending, readings: Readings
) -> None:
    async with App("memory://", sending=sending) as app:
        for number in range(300):
            await app.send(f"box-{number}", b"a")

    assert len(readings("messaging.client.sent.messages")) == 201
