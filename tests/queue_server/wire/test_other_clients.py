"""Clients that were written for Querator, or generated from the .proto in any language."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import httpx
import pytest
from google.protobuf import json_format
from msgspec import structs

from deadletter.core.events import Event
from deadletter.queue_server import formats, wire
from deadletter.queue_server.formats import WireFormat
from deadletter.settings import QueueCodes, Serve, Settings
from deadletter.testing.fakes import eventually
from deadletter.wiring.engines import open_engine
from queue_server.wire.wire_rig import Said, Served, Wire, served_by
from server.conftest import context_of

ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)


@pytest.fixture
def url() -> str:
    return "memory://"


@pytest.fixture
def codes() -> QueueCodes:
    return "deadletter"


@pytest.fixture
async def served(url: str, codes: QueueCodes) -> AsyncIterator[Served]:
    engine = await open_engine(url)
    try:
        events: list[Event] = []
        settings = Settings(serve=Serve(queue_codes=codes))
        context = structs.replace(context_of(engine, settings=settings), observe=events.append)
        async with served_by(context, events) as served:
            yield served
    finally:
        await engine.close()


async def _refusal(call: Any) -> tuple[int, str]:
    with pytest.raises(Said) as said:
        await call
    return said.value.code, said.value.message


# ---- JSON as protobuf libraries write and read it


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"queueName": "jobs", "leaseTimeout": "1m"}', {"lease_timeout": "1m"}),
        ('{"queue_name": "jobs", "maxAttempts": "3"}', {"max_attempts": 3}),
        ('{"queue_name": "jobs", "max_attempts": 3.0}', {"max_attempts": 3}),
        ('{"queue_name": "jobs", "dead_queue": null, "partitions": null}', {}),
        ('{"queue_name": "jobs", "deadQueue": ""}', {"dead_queue": ""}),
    ],
)
def test_json_of_protobuf_libraries_is_read(body: str, expected: dict[str, Any]) -> None:
    found = formats.read(body.encode(), WireFormat.JSON, wire.QueueInfo)

    assert found == wire.QueueInfo(queue_name="jobs", **expected)


@pytest.mark.parametrize("text", ["__-_", "//+/"])
@pytest.mark.parametrize("ending", ["AA==", "AA"])
def test_base64_may_be_the_variant_for_urls_and_unpadded(text: str, ending: str) -> None:
    body = f'{{"items": [{{"bytes": "{text}{ending}", "enqueueAt": null}}]}}'

    found = formats.read(body.encode(), WireFormat.JSON, wire.ProduceRequest)

    assert [item.payload for item in found.items] == [b"\xff\xff\xbf\x00"]


@pytest.mark.parametrize(
    "body",
    [
        '{"queue_name": "jobs", "queueName": "other"}',
        '{"queueNam": "jobs"}',
        '{"queue_name": 1}',
        '{"max_attempts": "three"}',
        '{"max_attempts": 3.5}',
        '{"maxAttempts": "99999999999"}',
        '{"partitions": [null]}',
        '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_json_that_protobuf_libraries_reject_is_rejected(body: str) -> None:
    with pytest.raises(wire.UnreadableBody):
        formats.read(body.encode(), WireFormat.JSON, wire.QueueInfo)


@pytest.mark.parametrize("snake_case", [True, False])
async def test_a_generated_client_may_use_either_case(
    served: Served, messages: ModuleType, snake_case: bool
) -> None:
    created = messages.QueueInfo(
        queue_name="jobs", lease_timeout="1m", expire_timeout="1h", max_attempts=3
    )
    body = json_format.MessageToJson(created, preserving_proto_field_name=snake_case)
    headers = {"content-type": "application/json"}
    async with httpx.AsyncClient(base_url=served.url, timeout=60.0) as http:
        answer = await http.post("/v1/queues.create", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        info = await http.post("/v1/queues.info", json={"queueName": "jobs"})

    found = json_format.Parse(info.content, messages.QueueInfo())
    assert (found.lease_timeout, found.max_attempts) == ("1m0s", 3)


# ---- times


@pytest.mark.parametrize("form", ["protobuf"])
async def test_an_item_without_a_deadline_has_the_zero_time_of_go(
    wire: Wire, messages: ModuleType
) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead")
    await wire.produce("waiting", "dead")
    (first, _) = await wire.lease(2)
    await wire.retry(first, dead=True)
    reply = {}
    for queue in ("dead", "jobs"):
        asked = messages.StorageItemsListRequest(queue_name=queue)
        headers = {"content-type": "application/protobuf"}
        answer = await wire.http.post(
            "/v1/storage/items.list", content=asked.SerializeToString(), headers=headers
        )
        (reply[queue],) = messages.StorageItemsListResponse.FromString(answer.content).items

    for field in ("lease_deadline", "expire_deadline"):
        assert reply["dead"].HasField(field)
        assert getattr(reply["dead"], field).ToDatetime(tzinfo=UTC) == ZERO_TIME
        assert getattr(reply["jobs"], field).ToDatetime(tzinfo=UTC) > ZERO_TIME
    assert not reply["dead"].HasField("enqueue_at")


@pytest.mark.parametrize("form", ["json"])
async def test_an_item_without_a_deadline_has_none_in_json(wire: Wire) -> None:
    await wire.create()
    await wire.produce("waiting")

    listed = await wire.http.post("/v1/storage/items.list", json={"queue_name": "jobs"})

    (item,) = listed.json()["items"]
    assert "lease_deadline" not in item
    assert "expire_deadline" in item


@pytest.mark.parametrize("form", ["protobuf"])
async def test_a_listed_item_can_be_imported_as_it_was_listed(wire: Wire) -> None:
    await wire.create()
    await wire.create("copy")
    await wire.produce("waiting")
    (item,) = await wire.items()

    await wire("storage/items.import", queue_name="copy", items=[item])

    (copy,) = await wire.items("copy")
    assert copy["lease_deadline"] == "0001-01-01T00:00:00Z"
    assert not copy["is_leased"]


# ---- requests


@pytest.mark.parametrize(
    ("call", "field"), [("storage/items.import", "items"), ("storage/items.delete", "ids")]
)
async def test_empty_lists_are_rejected(wire: Wire, call: str, field: str) -> None:
    await wire.create()

    code, message = await _refusal(wire(call, queue_name="jobs"))

    assert code == 400
    assert message.startswith(f"invalid {field};")


async def test_pivots_and_ids_that_cannot_exist_are_rejected(wire: Wire) -> None:
    await wire.create()
    for pivot in ("jobs~", "a b"):
        code, message = await _refusal(wire("queues.list", pivot=pivot))
        assert (code, message.split(";")[0]) == (400, "invalid pivot")

    code, message = await _refusal(wire("storage/items.delete", queue_name="jobs", ids=["one"]))

    assert (code, message.split(";")[0]) == (400, "invalid id 'one'")
    await wire("storage/items.delete", queue_name="jobs", ids=["0" * 16])  # is no longer there


@pytest.mark.parametrize("name", ["d" * 513, "a b", "a~b", "a\0b"])
async def test_errors_about_the_dead_queue_name_its_field(wire: Wire, name: str) -> None:
    await wire.create()
    for call in (
        wire.create("other", dead_queue=name),
        wire("queues.update", queue_name="jobs", dead_queue=name),
    ):
        code, message = await _refusal(call)
        assert code == 400
        assert message.startswith("invalid dead_queue;")


async def test_a_client_that_omits_zero_values_can_remove_options(wire: Wire) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead", max_attempts=3)

    await wire("queues.update", queue_name="jobs", reference="r")
    info = await wire("queues.info", queue_name="jobs")
    assert (info["dead_queue"], info["max_attempts"]) == ("dead", 3)

    await wire("queues.update", queue_name="jobs", max_attempts=-(2**31))
    info = await wire("queues.info", queue_name="jobs")
    assert (info["dead_queue"], info["max_attempts"]) == ("dead", 0)

    await wire("queues.update", queue_name="jobs", dead_queue="~")
    info = await wire("queues.info", queue_name="jobs")
    assert (info["dead_queue"], info["max_attempts"]) == ("", 0)


async def test_values_that_remove_options_are_invalid_in_new_queues(wire: Wire) -> None:
    assert (await _refusal(wire.create(dead_queue="~")))[0] == 400
    assert (await _refusal(wire.create(max_attempts=-(2**31))))[0] == 400


# ---- texts and codes that clients compare


@pytest.mark.parametrize("form", ["json"])
async def test_texts_that_clients_compare(wire: Wire, served: Served) -> None:
    await wire.create()
    code, message = await _refusal(wire.lease(within="20ms"))
    assert (code, message) == (454, "request timeout; no items are in the queue, try again")

    waiting = asyncio.create_task(wire.lease(client="same", within="1m"))

    async def is_waiting() -> bool:
        stats = await wire("queue.stats", queue_name="jobs")
        return bool(stats["logical_queues"][0]["lease_waiting"] == 1)

    await eventually(is_waiting)
    assert await _refusal(wire.lease(client="same", within="1m")) == (
        400,
        "duplicate client id; a client cannot make multiple leased requests to the same queue",
    )

    served.context.stopping.set()
    assert await _refusal(waiting) == (454, "queue is shutting down")
    assert await _refusal(wire.produce("late")) == (454, "service is shutting down")


@pytest.mark.parametrize(
    ("codes", "missing", "conflict", "stopping"),
    [("deadletter", 404, 409, 454), ("querator", 400, 400, 453)],
)
async def test_codes_can_be_those_of_querator(
    wire: Wire, served: Served, missing: int, conflict: int, stopping: int
) -> None:
    await wire.create()
    await wire.produce("1")
    (item,) = await wire.items()
    item["partition"] = 0

    assert (await _refusal(wire("queues.info", queue_name="none")))[0] == missing
    assert (await _refusal(wire.produce("1", queue="none")))[0] == missing
    assert (await _refusal(wire.items(partition=7)))[0] == missing
    assert (await _refusal(wire.create()))[0] == conflict
    assert (await _refusal(wire.complete(item)))[0] == conflict
    assert (await _refusal(wire.create("a b")))[0] == 400

    waiting = asyncio.create_task(wire.lease(2, client="one", within="1m"))
    await waiting
    waiting = asyncio.create_task(wire.lease(2, client="two", within="1m"))

    async def is_waiting() -> bool:
        stats = await wire("queue.stats", queue_name="jobs")
        return bool(stats["logical_queues"][0]["lease_waiting"] == 1)

    await eventually(is_waiting)
    served.context.stopping.set()
    assert (await _refusal(waiting))[0] == stopping
