"""The protocol itself: methods, paths, types, bodies, codes; by curl and by hand."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from types import ModuleType
from typing import Any

import httpx
import pytest

from deadletter.core.errors import Refused, Unavailable
from deadletter.server.listener import listen
from deadletter.testing.fakes import eventually
from queue_server.wire.wire_rig import Said, Served, Wire

pytestmark = pytest.mark.slow

JSON = {"content-type": "application/json"}
CREATE = {"queue_name": "jobs", "lease_timeout": "1m", "expire_timeout": "1h"}


@pytest.fixture
def url() -> str:
    return "memory://"


@pytest.fixture
async def http(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, timeout=60.0) as http:
        yield http


@pytest.fixture
async def jobs(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/queues.create", json=CREATE)
    assert answer.json() == {"code": 200, "code_text": "OK", "message": "", "details": {}}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_only_post_is_answered(http: httpx.AsyncClient, method: str) -> None:
    answer = await http.request(method, "/v1/queue.produce")

    assert answer.status_code == 400
    assert answer.json()["code_text"] == "Bad Request"
    assert "only POST" in answer.json()["message"]


@pytest.mark.parametrize(
    "path", ["queue.reserve", "queues.rebalance", "storage/scheduled.add", "", "x/y/z"]
)
async def test_unknown_paths_are_not_implemented(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.post(f"/v1/{path}", json={})

    assert answer.status_code == 501
    assert answer.json()["code"] == 501
    assert answer.json()["code_text"] == "Not Implemented"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b'{"queue_name": 1}', "application/json"),
        (b'{"queue_nam": "jobs"}', "application/json"),
        (b'{"queue_name": "\xff"}', "application/json"),
        (b'{"queue_name": "\\ud800"}', "application/json"),
        (b'{"items": [{"bytes": "no base64"}]}', "application/json"),
        (b'{"items": [{"enqueue_at": "tomorrow"}]}', "application/json"),
        (b'{"items": [{"enqueue_at": "2030-01-01T00:00:00"}]}', "application/json"),
        (b"\xff\xff\xff", "application/protobuf"),
        (b"\x0a\x02\xff\xff", "application/protobuf"),
        (b"queue_name=jobs", "application/x-www-form-urlencoded"),
        (b"<queue/>", "text/xml"),
    ],
)
async def test_unreadable_bodies_are_content_errors(
    http: httpx.AsyncClient, body: bytes, content_type: str
) -> None:
    headers = {"content-type": content_type, "accept": "application/json"}
    answer = await http.post("/v1/queue.produce", content=body, headers=headers)

    assert answer.status_code == 455
    assert answer.json()["code_text"] == "Client Content Error"


async def test_a_time_that_is_none_is_a_content_error(
    http: httpx.AsyncClient, messages: ModuleType
) -> None:
    item = messages.ProduceItem(utf8="x")
    item.enqueue_at.seconds = 10**15
    asked = messages.QueueProduceRequest(queue_name="jobs", items=[item])
    headers = {"content-type": "application/protobuf"}

    answer = await http.post(
        "/v1/queue.produce", content=asked.SerializeToString(), headers=headers
    )

    assert answer.status_code == 455


@pytest.mark.parametrize(
    ("content_type", "accept", "answered"),
    [
        ("application/json", None, "application/json"),
        ("application/json; charset=utf-8", "*/*", "application/json"),
        ("application/protobuf", None, "application/protobuf"),
        ("application/protobuf", "*/*", "application/protobuf"),
        ("application/protobuf", "application/json", "application/json"),
        ("application/json", "application/protobuf", "application/protobuf"),
        ("application/json", "text/html, application/json;q=0.9", "application/json"),
        ("application/json", "APPLICATION/Protobuf", "application/protobuf"),
    ],
)
async def test_the_reply_is_in_the_form_asked_for(
    http: httpx.AsyncClient,
    messages: ModuleType,
    content_type: str,
    accept: str | None,
    answered: str,
) -> None:
    if "json" in content_type:
        body = b'{"limit": 1}'
    else:
        body = messages.QueuesListRequest(limit=1).SerializeToString()
    headers = {"content-type": content_type, "accept": accept or ""}
    answer = await http.post("/v1/queues.list", content=body, headers=headers)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == answered
    assert answer.content == (b"" if "protobuf" in answered else b'{"items":[]}')


async def test_an_unsupported_reply_format_is_a_content_error(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/queues.list", json={}, headers={"accept": "text/csv"})

    assert answer.status_code == answer.json()["code"] == 455


async def test_errors_are_in_the_form_asked_for(
    http: httpx.AsyncClient, messages: ModuleType
) -> None:
    headers = {"content-type": "application/protobuf"}
    answer = await http.post("/v1/nothing", content=b"", headers=headers)

    reply = messages.Reply.FromString(answer.content)
    assert (answer.status_code, reply.code) == (501, 501)
    assert "/v1/nothing" in reply.message


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("queue.lease", 512),
        ("queue.complete", 256 * 1024),
        ("queue.retry", 256 * 1024),
        ("queue.stats", 256 * 1024),
        ("queues.create", 512 * 1024),
        ("queues.list", 256 * 1024),
        ("queue.produce", 5 * 1024 * 1024),
        ("storage/items.import", 64 * 1024 * 1024),
    ],
)
@pytest.mark.parametrize("told", [True, False], ids=["with a length", "streamed"])
async def test_bodies_have_limits(
    http: httpx.AsyncClient, path: str, limit: int, told: bool
) -> None:
    async def streamed(size: int) -> AsyncIterator[bytes]:
        for start in range(0, size, 60_000):
            yield b" " * min(60_000, size - start)

    async def send(size: int) -> httpx.Response:
        body: Any = b" " * size if told else streamed(size)
        return await http.post(f"/v1/{path}", content=body, headers=JSON)

    # Spaces are no JSON, but that is only seen when all of them were read.
    assert (await send(limit)).status_code == 455
    refused = await send(limit + 1)
    assert refused.status_code == 400
    assert "too long" in refused.json()["message"]


async def test_a_body_that_never_ends_is_cut_off(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/queue.stats HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    sent = 0
    with suppress(ConnectionError):
        async with asyncio.timeout(20):
            while sent < 200 * 1024 * 1024:
                writer.write(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
                await writer.drain()
                sent += 0x100000

    assert sent < 100 * 1024 * 1024
    with suppress(ConnectionError):
        assert (await reader.read(12)) in {b"", b"HTTP/1.1 400"}
    writer.close()


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("error", "code"), [(Unavailable("db-7 is down"), 454), (Refused("disk full"), 453)]
)
async def test_a_storage_error_is_never_a_quiet_200(
    http: httpx.AsyncClient,
    served: Served,
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise error

    for verb in ("produce", "lease", "complete", "retry", "stats", "items"):
        monkeypatch.setattr(served.store, verb, fails)
    for path, fields in (
        ("queue.produce", {"request_timeout": "1s", "items": [{"utf8": "1"}]}),
        ("queue.lease", {"request_timeout": "1s", "batch_size": 1, "client_id": "c"}),
        ("queue.complete", {"request_timeout": "1s", "ids": ["1"]}),
        ("queue.retry", {"items": [{"id": "1"}]}),
        ("queue.stats", {}),
        ("storage/items.list", {}),
    ):
        answer = await http.post(f"/v1/{path}", json={"queue_name": "jobs", **fields})
        assert answer.status_code == answer.json()["code"] == code
        assert str(error) not in answer.text  # which may hold addresses


@pytest.mark.usefixtures("jobs")
async def test_a_mistake_of_ours_is_a_500_without_details(
    http: httpx.AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("the secret is 42")

    monkeypatch.setattr(served.store, "stats", fails)
    answer = await http.post("/v1/queue.stats", json={"queue_name": "jobs"})

    assert answer.status_code == answer.json()["code"] == 500
    assert "secret" not in answer.text
    assert answer.json()["details"]["error.id"] in answer.json()["message"]


@pytest.mark.usefixtures("jobs")
async def test_times_are_rfc_3339(http: httpx.AsyncClient) -> None:
    later = {"utf8": "1", "enqueue_at": "2100-01-01T01:00:00.123456789+01:00"}
    asked = {"queue_name": "jobs", "request_timeout": "1s", "items": [later]}
    assert (await http.post("/v1/queue.produce", json=asked)).status_code == 200

    found = await http.post("/v1/storage/scheduled.list", json={"queue_name": "jobs"})

    (item,) = found.json()["items"]
    assert item["enqueue_at"] == "2100-01-01T00:00:00.123457Z"


@pytest.mark.usefixtures("jobs")
async def test_a_client_that_hangs_up_is_lent_nothing(
    served: Served, http: httpx.AsyncClient
) -> None:
    asked = {"queue_name": "jobs", "batch_size": 1, "client_id": "c", "request_timeout": "1m"}

    async def waiting() -> int:
        stats = await http.post("/v1/queue.stats", json={"queue_name": "jobs"})
        count: int = stats.json()["logicalQueues"][0]["lease_waiting"]
        return count

    async with httpx.AsyncClient(base_url=served.url) as gone:
        task = asyncio.create_task(gone.post("/v1/queue.lease", json=asked))
        await eventually(waiting)
        task.cancel()
    await eventually(lambda: _none(waiting))

    items = [{"utf8": "1"}]
    produce = {"queue_name": "jobs", "request_timeout": "1s", "items": items}
    await http.post("/v1/queue.produce", json=produce)
    leased = await http.post("/v1/queue.lease", json=asked)
    assert leased.json()["items"][0]["attempts"] == 1


async def _none(count: Any) -> bool:
    return not await count()


@pytest.mark.parametrize("form", ["json"])
async def test_clients_waiting_when_the_server_stops_are_told_to_try_again(
    wire: Wire, served: Served
) -> None:
    await wire.create()
    waiting = [
        asyncio.create_task(wire.lease(client=f"c{number}", within="1m")) for number in range(5)
    ]

    async def all_wait() -> bool:
        stats = await wire("queue.stats", queue_name="jobs")
        return bool(stats["logical_queues"][0]["lease_waiting"] == 5)

    await eventually(all_wait)
    served.context.stopping.set()

    async with asyncio.timeout(5):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in answers] == [Said] * 5
    assert {(one.code, "shutting down" in one.message) for one in answers} == {  # type: ignore[union-attr]
        (454, True)
    }


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with closing(listen("127.0.0.1", 0)) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def _curl(url: str, *words: str) -> tuple[int, Any]:
    process = await asyncio.create_subprocess_exec(
        "curl", *("-s", "-w", "\n%{http_code}", *words, url), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    body, _, code = out.decode().rpartition("\n")
    return int(code), json.loads(body)


async def test_with_nothing_but_curl(served: Served) -> None:
    async def call(name: str, **fields: Any) -> tuple[int, Any]:
        words = ("-H", "Content-Type: application/json", "-d", json.dumps(fields))
        return await _curl(f"{served.url}/v1/{name}", *words)

    ok = {"code": 200, "code_text": "OK", "message": "", "details": {}}
    assert await call("queues.create", **CREATE) == (200, ok)
    items = [{"utf8": "hello", "kind": "greeting"}]
    produced = await call("queue.produce", queue_name="jobs", request_timeout="5s", items=items)
    assert produced == (200, ok)
    code, leased = await call(
        "queue.lease", queue_name="jobs", batch_size=10, client_id="curl", request_timeout="5s"
    )
    assert code == 200
    (item,) = leased["items"]
    assert (item["bytes"], item["kind"], item["attempts"]) == ("aGVsbG8=", "greeting", 1)
    completion = {
        "queue_name": "jobs",
        "partition": leased["partition"],
        "request_timeout": "5s",
        "ids": [item["id"]],
    }
    assert await call("queue.complete", **completion) == (200, ok)
    code, again = await call("queue.complete", **completion)
    assert (code, again["code"], again["code_text"]) == (400, 400, "Bad Request")
    code, stats = await call("queue.stats", queue_name="jobs")
    assert (code, stats["logicalQueues"][0]["partitions"][0]["total"]) == (200, 0)
    assert (await _curl(f"{served.url}/v1/queues.list"))[0] == 400  # a GET
