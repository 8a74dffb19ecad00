"""Odd and hostile requests: each gets a clear error, and no item is lost or stuck."""

import asyncio
import gzip
import json
from typing import Any

import httpx
import pytest

from deadletter.testing.fakes import eventually
from queue_server.wire.wire_rig import Said, Served, Wire

FUTURE = "8999-12-31T23:59:59Z"


async def _rejected(call: Any) -> tuple[int, str]:
    with pytest.raises(Said) as said:
        await call
    return said.value.code, said.value.message


async def _leased_count(wire: Wire) -> int:
    return sum([item["is_leased"] for item in await wire.items()])


@pytest.mark.parametrize("form", ["json"])
async def test_a_completion_that_names_an_item_twice_is_rejected(wire: Wire) -> None:
    await wire.create()
    await wire.produce("1", "2")
    first, second = await wire.lease(2)

    code, message = await _rejected(wire.complete(first, second, first))

    assert code == 400
    assert message == f"invalid id; the request names '{first['id']}' more than once"
    assert await _leased_count(wire) == 2
    await wire.complete(first, second)
    assert await wire.items() == []


@pytest.mark.parametrize("form", ["json"])
async def test_a_retry_that_names_an_item_twice_is_rejected(wire: Wire) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead")
    await wire.produce("1")
    (item,) = await wire.lease()
    items = [{"id": item["id"]}, {"id": item["id"], "dead": True}]

    code, message = await _rejected(wire("queue.retry", queue_name="jobs", items=items))

    assert (code, "more than once" in message) == (400, True)
    assert await _leased_count(wire) == 1
    assert await wire.items("dead") == []


@pytest.mark.parametrize("form", ["json"])
async def test_ages_of_items_from_the_future_are_not_negative(wire: Wire) -> None:
    await wire.create()
    items = [{"payload": "eA==", "created_at": FUTURE, "updated_at": FUTURE}]
    await wire("storage/items.import", queue_name="jobs", items=items)

    stats = await wire("queue.stats", queue_name="jobs")

    (partition,) = stats["logical_queues"][0]["partitions"]
    assert (partition["total"], partition["average_age"]) == (1, "0s")


@pytest.mark.parametrize("form", ["json"])
async def test_deleting_a_queue_answers_everybody_who_waits(wire: Wire) -> None:
    await wire.create()
    waiting = [asyncio.create_task(wire.lease(client=f"c{n}", within="1m")) for n in range(40)]

    async def all_wait() -> bool:
        stats = await wire("queue.stats", queue_name="jobs")
        return bool(stats["logical_queues"][0]["lease_waiting"] == len(waiting))

    await eventually(all_wait)
    await wire("queues.delete", queue_name="jobs")

    async with asyncio.timeout(10):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {getattr(one, "code", None) for one in answers} == {404}
    await wire.create()
    await wire.produce("1")
    assert len(await wire.lease(client="c0")) == 1


@pytest.mark.parametrize("url", ["memory://"])
@pytest.mark.parametrize(
    ("call", "fields", "error"),
    [
        (
            "queue.produce",
            {"items": [{"utf8": "x", "enqueue_at": "9999-01-01T00:00:00Z"}]},
            "invalid enqueue_at; its year must be at most 9000, got 9999-01-01T00:00:00+00:00",
        ),
        ("queue.produce", {"items": []}, "invalid items; it must have 1 to 1,000 elements, got 0"),
        (
            "queue.produce",
            {"items": [{"reference": "r" * 2001}]},
            "invalid reference; it must have at most 2,000 characters, got 2,001",
        ),
        (
            "queue.lease",
            {"batch_size": 1, "client_id": "c", "request_timeout": "16m"},
            "invalid request_timeout; it must be more than 10ms and at most 15m, got '16m'",
        ),
        (
            "queue.complete",
            {"partition": -1, "ids": ["1"]},
            "invalid partition; it must be 0 or more, got -1",
        ),
        (
            "storage/items.import",
            {"items": [{"attempts": -1}]},
            "invalid attempts; it must be 0 to 65,536, got -1",
        ),
        ("storage/items.list", {"limit": -1}, "invalid limit; it must be 0 to 65,536, got -1"),
        (
            "queues.update",
            {"requested_partitions": 1001},
            "invalid requested_partitions; it must be 1 to 1,000, got 1,001",
        ),
        (
            "queues.update",
            {"dead_queue": "a b"},
            "invalid dead_queue; it must contain neither white space nor '~', got 'a b'",
        ),
        (
            "queues.update",
            {"lease_timeout": "2h"},
            "invalid lease_timeout; it must be at most expire_timeout, got 2h0m0s and 1h0m0s",
        ),
    ],
)
async def test_errors_name_the_field_and_its_value(
    served: Served, call: str, fields: dict[str, Any], error: str
) -> None:
    jobs = {"queue_name": "jobs", "lease_timeout": "1m", "expire_timeout": "1h"}
    timeout = {"request_timeout": "1s"} if call in {"queue.produce", "queue.complete"} else {}
    async with httpx.AsyncClient(base_url=served.url, timeout=60.0) as http:
        await http.post("/v1/queues.create", json=jobs)

        answer = await http.post(f"/v1/{call}", json={"queue_name": "jobs", **timeout, **fields})

    assert (answer.status_code, answer.json()["message"]) == (400, error)


@pytest.mark.parametrize("url", ["memory://"])
async def test_compressed_bodies_are_rejected_with_a_reason(served: Served) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    body = gzip.compress(json.dumps({"queue_name": "jobs"}).encode())
    async with httpx.AsyncClient(base_url=served.url, timeout=60.0) as http:
        answer = await http.post("/v1/queue.stats", content=body, headers=headers)

    assert answer.status_code == 455
    assert answer.json()["message"] == (
        "Content-Encoding 'gzip' is not supported; send the body uncompressed"
    )
