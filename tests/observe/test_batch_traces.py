"""Batches as spans: what is received and settled, by whom it was sent, what failed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from deadletter import App
from deadletter.core.errors import Unavailable
from deadletter.core.message import Delivery
from deadletter.observe.traces import MOST_LINKS, traced
from deadletter.ports import Acked, Settlement
from deadletter.runtime.handlers import around
from deadletter.testing.fakes import FakeClock, eventually
from observe.test_traces import PARENT, TRACE, Spans, delivery
from office.making import NOW

CLOCK = FakeClock(NOW)


class Fed:
    """A source that hands out what it is given."""

    mailbox = "orders"
    features: Any = None

    def __init__(self, *batch: Delivery, error: Exception | None = None) -> None:
        self._batch = batch
        self._error = error

    async def receive(self, **_: Any) -> Sequence[Delivery]:
        CLOCK.advance(1.5)
        if self._error:
            raise self._error
        return self._batch

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        if self._error:
            raise self._error
        return [True] * len(settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        return [True] * len(deliveries)


@pytest.fixture
def spans() -> Spans:
    return Spans()


async def received(source: Fed, spans: Spans) -> Sequence[Delivery]:
    wrapped = around(source, [traced(spans.provider, system="sqlite")], CLOCK)
    return await wrapped.receive(limit=10, wait=0.0, lease=60.0)


async def test_a_batch_that_was_received_is_one_span(spans: Spans) -> None:
    batch = (delivery(traceparent=PARENT), delivery())

    assert await received(Fed(*batch), spans) == batch

    [span] = spans("receive orders")
    assert span.kind is SpanKind.CLIENT
    assert span.parent is None
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == 1_500_000_000
    assert span.attributes == {
        "messaging.system": "sqlite",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.batch.message_count": 2,
    }
    assert [link.context.trace_id for link in span.links] == [TRACE]


async def test_a_fetch_that_found_nothing_is_no_span(spans: Spans) -> None:
    await received(Fed(), spans)

    assert spans() == []


async def test_a_batch_that_was_settled_is_one_span(spans: Spans) -> None:
    source = around(Fed(), [traced(spans.provider)], CLOCK)
    some = [Acked(delivery(traceparent=PARENT)) for _ in range(MOST_LINKS + 1)]

    assert await source.settle(some) == [True] * len(some)

    [span] = spans("settle orders")
    assert span.attributes is not None
    assert span.attributes["messaging.operation.type"] == "settle"
    assert span.attributes["messaging.batch.message_count"] == MOST_LINKS + 1
    assert len(span.links) == MOST_LINKS


@pytest.mark.parametrize("operation", ["receive", "settle"])
async def test_an_engine_out_of_reach_is_told_by_its_type_alone(
    spans: Spans, operation: str
) -> None:
    away = Fed(error=Unavailable("at db.internal, password=hunter2"))
    source = around(away, [traced(spans.provider)], CLOCK)
    asked = {
        "receive": lambda: source.receive(limit=1, wait=0.0, lease=1.0),
        "settle": lambda: source.settle([Acked(delivery())]),
    }

    with pytest.raises(Unavailable):
        await asked[operation]()

    [span] = spans(f"{operation} orders")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "deadletter.core.errors.Unavailable"
    assert "hunter2" not in span.to_json()


async def test_untraced_sources_are_not_wrapped() -> None:
    source = Fed()

    assert around(source, [], CLOCK) is source
    assert around(source, [lambda handler: handler], CLOCK) is source


async def test_a_worker_that_is_traced_makes_all_three(spans: Spans) -> None:
    app = App("memory://")

    @app.handler("orders", middleware=[traced(spans.provider)])
    async def charge(order: dict[str, int]) -> None: ...

    async with app:
        await app.send("orders", {"amount": 1})
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        try:
            await eventually(lambda: spans("settle orders"))
        finally:
            stop.set()
            await working

    names = [span.name for span in spans()]
    assert names == ["receive orders", "process orders", "settle orders"]
