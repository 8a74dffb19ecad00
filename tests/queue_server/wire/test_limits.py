"""Limits hold to the last character, and what cannot be is refused with a reason."""

from collections.abc import Callable
from typing import Any

import pytest

from queue_server.wire.wire_rig import Said, Wire


@pytest.fixture
def url() -> str:
    return "memory://"


async def _refused(call: Any, text: str) -> None:
    with pytest.raises(Said) as said:
        await call
    assert said.value.code == 400
    assert text in said.value.message


async def test_names_of_queues(wire: Wire) -> None:
    await wire.create("n" * 512)
    for name, text in (
        ("", "invalid queue_name; it must have 1 to 512 characters, got 0"),
        ("n" * 513, "512"),
        ("a b", "white space"),
        ("a\tb", "white space"),
        ("a\u00a0b", "white space"),
        ("a~b", "~"),
        ("a\0b", "NUL"),
    ):
        await _refused(wire.create(name), text)
        await _refused(wire.produce("1", queue=name), text)
        if name:
            await _refused(wire.create("fine", dead_queue=name), text)


async def test_references(wire: Wire) -> None:
    await wire.create(reference="r" * 2000)
    await wire.produce("1", reference="r" * 2000)

    await _refused(wire.create("other", reference="r" * 2001), "reference")
    await _refused(wire.produce("1", reference="r" * 2001), "reference")
    assert len(await wire.items()) == 1


async def test_attempts(wire: Wire) -> None:
    await wire.create("most", max_attempts=65_536)

    await _refused(wire.create(max_attempts=65_537), "max_attempts")
    await _refused(wire.create(max_attempts=-1), "max_attempts")
    await _refused(wire.create(limit_mode="often"), "limit_mode")


async def test_timeouts_of_queues(wire: Wire) -> None:
    await wire.create("even", lease_timeout="1m", expire_timeout="60s")

    for options, text in (
        ({"lease_timeout": ""}, "lease_timeout; it is required"),
        ({"expire_timeout": ""}, "expire_timeout; it is required"),
        ({"lease_timeout": "soon"}, "not a duration"),
        ({"lease_timeout": "-1s"}, "longer than 0"),
        ({"lease_timeout": "61s", "expire_timeout": "1m"}, "at most expire_timeout"),
    ):
        await _refused(wire.create(**options), text)
    await _refused(wire("queues.update", queue_name="even", lease_timeout="2m"), "at most expire")
    missing = wire("queues.create", queue_name="jobs", lease_timeout="1m")
    await _refused(missing, "expire_timeout; it is required")


async def test_partitions(wire: Wire) -> None:
    await _refused(wire.create(requested_partitions=-1), "requested_partitions")
    await _refused(wire.create(requested_partitions=100_000), "requested_partitions")


async def test_timeouts_of_requests(wire: Wire) -> None:
    await wire.create()

    def asking(name: str, **fields: Any) -> Callable[[str], Any]:
        return lambda within: wire(name, queue_name="jobs", request_timeout=within, **fields)

    for ask in (
        asking("queue.produce", items=[{"utf8": "1"}]),
        asking("queue.lease", batch_size=1, client_id="c"),
        asking("queue.complete", ids=["1"]),
    ):
        for within in ("", "10ms", "0", "15m0.001s", "16m", "-5s", "5"):
            await _refused(ask(within), "request_timeout")
    await asking("queue.produce", items=[{"utf8": "1"}])("10.001ms")
    await asking("queue.produce", items=[{"utf8": "1"}])("15m")


async def test_batches(wire: Wire) -> None:
    await wire.create()

    await _refused(wire.produce(), "items")
    await wire.produce(*["1"] * 1000)
    await _refused(wire.produce(*["1"] * 1001), "items")
    await _refused(wire.lease(0), "batch_size")
    await _refused(wire.lease(1001), "batch_size")
    await _refused(wire.lease(-1), "batch_size")
    leased = await wire.lease(1000)
    assert len(leased) == 1000
    await _refused(wire.complete(*leased, leased[0]), "ids")
    none = wire("queue.complete", queue_name="jobs", request_timeout="1s")
    await _refused(none, "ids")
    await _refused(wire("queue.retry", queue_name="jobs"), "items")
    many = [{"id": "1"}] * 1001
    await _refused(wire("queue.retry", queue_name="jobs", items=many), "items")
    await wire.complete(*leased)


async def test_lists(wire: Wire) -> None:
    await wire.create()
    await wire.produce(*["1"] * 1000)
    await wire.produce("1")

    assert len(await wire.items()) == 1000
    assert len(await wire.items(limit=65_536)) == 1001
    await _refused(wire.items(limit=65_537), "limit")
    await _refused(wire.items(limit=-1), "limit")
    await _refused(wire("queues.list", limit=65_537), "limit")


async def test_clients_have_names(wire: Wire) -> None:
    await wire.create()

    await _refused(wire.lease(client=""), "client_id")


async def test_times(wire: Wire) -> None:
    await wire.create(expire_timeout="2562047h")

    await wire.produce("1", enqueue_at="9000-01-01T00:00:00Z")
    await _refused(wire.produce("1", enqueue_at="9001-01-01T00:00:00Z"), "9000")


async def test_texts_that_databases_cannot_keep(wire: Wire) -> None:
    await wire.create()

    await _refused(wire.produce("1", kind="a\0b"), "NUL")
    await _refused(wire.produce("1", encoding="a\0b"), "NUL")
    await wire.produce("a\0b")  # a payload may hold anything
