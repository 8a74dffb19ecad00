"""Attempts as spans: whose trace, which links, and what errors remember of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from deadletter import App, DLQPolicy, GiveUp, NoBackoff
from deadletter.core.errors import Unavailable
from deadletter.core.events import Buried, Event, Retried
from deadletter.core.letter import By, State
from deadletter.core.message import Delivery, Lineage, Message, marked, span_of
from deadletter.observe.logs import fields_of
from deadletter.observe.traces import carried, traced
from deadletter.office.replay import Replay
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually
from office.making import NOW, make_letter

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = int("4bf92f3577b34da6a3ce929d0e0e4736", 16)


class Spans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def __call__(self, name: str | None = None) -> list[ReadableSpan]:
        spans = self._exporter.get_finished_spans()
        return [span for span in spans if name in (None, span.name)]


@pytest.fixture
def spans() -> Spans:
    return Spans()


def delivery(**more: Any) -> Delivery:
    message = Message(id="m-1", body=b"secret body", sent_at=NOW, **more)
    return Delivery(message=message, mailbox="orders", attempt=2)


async def test_an_attempt_is_a_span_in_the_trace_of_its_producer(spans: Spans) -> None:
    inside: list[trace.SpanContext] = []

    @traced(spans.provider)
    async def handle(_: Delivery) -> str:
        inside.append(trace.get_current_span().get_span_context())
        return "done"

    answer = await handle(delivery(traceparent=PARENT, tracestate="shop=1"))

    [span] = spans()
    assert answer == "done"
    assert span.name == "process orders"
    assert span.kind is SpanKind.CONSUMER
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (TRACE, 0x00F067AA0BA902B7)
    assert span.get_span_context() == inside[0]  # what the handler does is within it
    assert span.attributes is not None
    assert span.attributes["messaging.destination.name"] == "orders"
    assert span.attributes["messaging.operation.name"] == "process"
    assert span.attributes["messaging.message.id"] == "m-1"
    assert span.attributes["messaging.message.body.size"] == 11
    assert span.attributes["dlq.attempt"] == 2
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("odd", [None, "", "nonsense", "00-0-0-0", "\x00" * 100])
async def test_a_message_without_a_trace_begins_one(spans: Spans, odd: str | None) -> None:
    @traced(spans.provider)
    async def handle(_: Delivery) -> None: ...

    with trace.use_span(trace.NonRecordingSpan(trace.INVALID_SPAN_CONTEXT)):
        await handle(delivery(traceparent=odd))

    assert spans()[0].parent is None


async def test_a_failed_attempt_says_what_type_of_error_and_marks_it(spans: Spans) -> None:
    @traced(spans.provider)
    async def handle(_: Delivery) -> None:
        raise ValueError("card 4111 1111 1111 1111")

    with pytest.raises(ValueError, match="card") as raised:
        await handle(delivery(traceparent=PARENT))

    [span] = spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ValueError"
    assert "4111" not in span.to_json()  # texts of errors may hold parts of messages
    told = span_of(marked(raised.value))
    context = span.get_span_context()
    assert told is not None
    assert context is not None
    assert int(told.trace_id, 16) == context.trace_id == TRACE
    assert int(told.span_id, 16) == context.span_id


async def test_a_handlers_say_in_its_own_fate_is_no_error(spans: Spans) -> None:
    @traced(spans.provider)
    async def handle(_: Delivery) -> None:
        raise GiveUp("not mine")

    with pytest.raises(GiveUp):
        await handle(delivery())

    assert spans()[0].status.status_code is StatusCode.UNSET


async def test_a_replay_begins_a_trace_and_links_to_where_it_was_sent(spans: Spans) -> None:
    @traced(spans.provider)
    async def handle(_: Delivery) -> None: ...

    lineage = Lineage(letter_id="l-1", generation=3, campaign="c-1")
    await handle(delivery(traceparent=PARENT, lineage=lineage))

    [span] = spans()
    assert span.parent is None
    assert span.context is not None
    assert span.context.trace_id != TRACE
    [link] = span.links
    assert link.context.trace_id == TRACE
    assert link.attributes == {"dlq.link": "sent"}
    assert span.attributes is not None
    assert span.attributes["dlq.letter.id"] == "l-1"
    assert span.attributes["dlq.replay.generation"] == 3


async def test_an_office_that_is_away_is_no_reason_not_to_work(spans: Spans) -> None:
    async def away() -> Any:
        raise Unavailable("no route")

    @traced(spans.provider, letters=away)
    async def handle(_: Delivery) -> str:
        return "done"

    lineage = Lineage(letter_id="l-1", generation=1, campaign="c-1")
    answer = await handle(delivery(traceparent=PARENT, lineage=lineage))

    assert answer == "done"
    assert spans()[0].links[0].context.trace_id == TRACE


def test_the_current_trace_can_be_sent_along(spans: Spans) -> None:
    with spans.provider.get_tracer("shop").start_as_current_span("checkout") as span:
        sent = carried()

    told = span_of(sent["traceparent"])
    assert told is not None
    assert int(told.span_id, 16) == span.get_span_context().span_id


@asynccontextmanager
async def working(app: App) -> AsyncIterator[None]:
    stop = asyncio.Event()
    at_work = asyncio.create_task(app.work(stop))
    try:
        yield
    finally:
        stop.set()
        await at_work


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_from_a_producer_to_its_grave_and_back(
    tmp_path: Path, spans: Spans, kind: str
) -> None:
    """A replay's span links to the very span that failed last."""
    events: list[Event] = []
    app = App(f"sqlite:///{tmp_path}/shop.db", observe=events.append)
    broken = True
    policy = DLQPolicy(max_attempts=2, backoff=NoBackoff())
    layers = [traced(spans.provider, letters=app.letters)]

    if kind == "async":

        @app.handler("orders", policy=policy, middleware=layers)
        async def charge(order: dict[str, int]) -> None:
            if broken:
                raise ConnectionError("the bank is closed")
    else:

        @app.handler("orders", policy=policy, middleware=layers)
        def charge_on_thread(order: dict[str, int]) -> None:
            if broken:
                raise ConnectionError("the bank is closed")

    async with app:
        letters = await app.letters()
        engine = await app.engine()
        tracer = spans.provider.get_tracer("shop")
        async with working(app):
            with tracer.start_as_current_span("checkout") as checkout:
                await app.send("orders", {"amount": 1}, **carried())
            await eventually(lambda: any(isinstance(e, Buried) for e in events))
            first, second = spans("process orders")
            broken = False
            replay = Replay(letters, engine.broker, SystemClock(), SystemDice(), engine.ledger)
            campaign = await replay.start("is:pending", By("anna", "the bank is open"))
            await replay.run(campaign.id)
            await eventually(lambda: len(spans("process orders")) == 3)
        [head] = (await letters.find()).heads

    third = spans("process orders")[2]
    producer = checkout.get_span_context()
    for attempt in (first, second):
        assert attempt.parent is not None
        assert attempt.parent.span_id == producer.span_id
    assert head.trace_id == f"{producer.trace_id:032x}"
    assert head.state is State.REPLAYED
    assert third.parent is None
    [link] = third.links
    assert second.context is not None
    assert link.context.span_id == second.context.span_id
    assert link.context.trace_id == second.context.trace_id
    assert link.attributes == {"dlq.link": "failed"}
    retried = next(event for event in events if isinstance(event, Retried))
    buried = next(event for event in events if isinstance(event, Buried))
    for event, span in ((retried, first), (buried, second)):
        fields = fields_of(event)
        assert span.context is not None
        assert fields["trace_id"] == f"{span.context.trace_id:032x}"
        assert fields["span_id"] == f"{span.context.span_id:016x}"


def test_a_line_without_a_trace_has_no_such_keys() -> None:
    from observe.test_logs import BURIED

    assert "trace_id" not in fields_of(BURIED)


async def test_the_last_attempt_that_had_a_span_is_the_one_linked_to(
    spans: Spans, store: Any
) -> None:
    letter = make_letter(1)
    await store.keep([letter])  # whose attempts had no spans

    async def letters() -> Any:
        return store

    @traced(spans.provider, letters=letters)
    async def handle(_: Delivery) -> None: ...

    lineage = Lineage(letter_id=letter.id, generation=1, campaign="c-1")
    await handle(delivery(traceparent=PARENT, lineage=lineage))

    assert spans()[0].links[0].attributes == {"dlq.link": "sent"}
