"""Health over HTTP."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from deadletter.core.errors import ConfigError, NotFound
from deadletter.runtime import health
from deadletter.runtime.health import Complaint, HealthServer
from deadletter.testing.fakes import eventually


async def well() -> list[Complaint]:
    return []


@asynccontextmanager
async def serving(
    complaints: list[Complaint] | None = None, **options: Any
) -> AsyncIterator[HealthServer]:
    async def ready() -> list[Complaint]:
        return complaints or []

    server = HealthServer(ready, host="127.0.0.1", port=0, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def send(server: HealthServer, request: bytes) -> bytes:
    """The whole answer to some bytes."""
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 10.0)
    finally:
        writer.close()


async def get(server: HealthServer, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    answer = await send(server, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), msgspec.json.decode(body)


async def test_live_says_healthy_and_nothing_else() -> None:
    async with serving([Complaint("orders", "it is not well")]) as server:
        assert await get(server, "/health/live") == (200, {"status": "healthy"})


async def test_ready_is_200_while_nobody_complains() -> None:
    async with serving() as server:
        assert await get(server, "/health/ready") == (200, {"status": "healthy"})


async def test_ready_is_503_with_the_reasons_of_each_loop() -> None:
    async with serving([Complaint("orders", "broker is out of reach")]) as server:
        status, body = await get(server, "/health/ready?verbose=1")

        assert status == 503
        assert body == {
            "status": "unhealthy",
            "reasons": [{"loop": "orders", "reason": "broker is out of reach"}],
        }


@pytest.mark.parametrize(("depth", "status"), [(0, "healthy"), (99, "healthy"), (100, "degraded")])
async def test_a_dlq_of_a_hundred_letters_is_degraded(depth: int, status: str) -> None:
    async def depths() -> dict[str, int]:
        return {"small-dlq": 0, "orders-dlq": depth}

    async with serving(depth=depths) as server:
        code, body = await get(server, "/health/dlq")

        assert code == 200
        assert body["status"] == status
        assert {"name": "orders-dlq", "depth": depth, "threshold": 100} in body["dlqs"]
        assert body["dlq"]["depth"] == depth


@pytest.mark.parametrize(("depth", "status"), [(4, "healthy"), (5, "degraded")])
async def test_how_many_letters_are_too_many_can_be_said(depth: int, status: str) -> None:
    async def depths() -> dict[str, int]:
        return {"orders-dlq": depth}

    async with serving(depth=depths, depth_threshold=5) as server:
        _, body = await get(server, "/health/dlq")

        assert (body["status"], body["dlq"]["threshold"]) == (status, 5)


async def test_metrics_are_served_as_text() -> None:
    async def text() -> bytes:
        return b"dlq_attempts_total 3.0\n"

    async with serving(metrics=text) as server:
        answer = await send(server, b"GET /metrics HTTP/1.1\r\n\r\n")

        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"Content-Type: text/plain; version=0.0.4" in head
        assert body == b"dlq_attempts_total 3.0\n"


async def test_where_nothing_counts_it_is_said_why() -> None:
    async def text() -> bytes:
        raise NotFound("get a counter")

    async with serving(metrics=text) as server:
        answer = await get(server, "/metrics")

        assert answer == (404, {"error": "get a counter"})


async def test_no_dlq_at_all_is_healthy() -> None:
    async def depths() -> dict[str, int]:
        return {}

    async with serving(depth=depths) as server:
        code, body = await get(server, "/health/dlq")

        assert (code, body["status"], body["dlq"]) == (200, "healthy", None)


async def test_a_depth_that_cannot_be_counted_is_not_healthy() -> None:
    async def depths() -> dict[str, int]:
        raise ConnectionError("password=hunter2")

    async with serving(depth=depths) as server:
        code, body = await get(server, "/health/dlq")

        assert code == 503
        assert body["status"] == "unhealthy"
        assert "hunter2" not in body["reason"]


async def test_other_paths_are_not_found() -> None:
    async with serving() as server:
        for path in ("/", "/health", "/health/dlq", "/metrics", "//health/live"):
            status, _ = await get(server, path)

            assert status == 404, path


@pytest.mark.parametrize("method", ["POST", "HEAD", "DELETE", "get", "OPTIONS"])
async def test_other_methods_are_not_allowed(method: str) -> None:
    async with serving() as server:
        status, _ = await get(server, "/health/live", method)

        assert status == 405


@pytest.mark.parametrize(
    "request_", [b"\r\n\r\n", b"GET\r\n\r\n", b"GET / SPDY/3\r\n\r\n", b"\x16\x03\x01\r\n\r\n"]
)
async def test_requests_that_are_not_http_are_bad_requests(request_: bytes) -> None:
    async with serving() as server:
        answer = await send(server, request_)

        assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_request_that_goes_on_for_ever_is_cut_off() -> None:
    async with serving() as server:
        endless = b"GET /health/live HTTP/1.1\r\n" + b"X: y\r\n" * 20_000

        try:
            answer = await send(server, endless)
        except ConnectionError:
            answer = b"HTTP/1.1 431 "  # hung up on before all was sent

        assert answer.startswith(b"HTTP/1.1 431 ")
        assert (await get(server, "/health/live"))[0] == 200


async def test_a_client_that_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_PATIENCE", 0.05)
    async with serving() as server:
        answer = await send(server, b"GET /health/live HT")

        assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_does_not_read_its_answer_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def metrics() -> bytes:
        return b"x" * 50_000_000

    def read_all(client: socket.socket) -> int:
        total = 0
        with suppress(ConnectionResetError):
            while chunk := client.recv(1 << 20):
                total += len(chunk)
        return total

    monkeypatch.setattr(health, "_PATIENCE", 0.2)
    async with serving(metrics=metrics) as server:
        tasks = len(asyncio.all_tasks())
        with socket.create_connection(server.address) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            await eventually(lambda: len(asyncio.all_tasks()) > tasks)
            await eventually(lambda: len(asyncio.all_tasks()) == tasks)

            # What the system had taken by then; the rest is not kept for it.
            assert await asyncio.to_thread(read_all, client) < 50_000_000


async def test_a_crowd_of_slow_clients_does_not_keep_a_probe_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "CONNECTIONS", 5)
    async with serving() as server:
        crowd = [await asyncio.open_connection(*server.address) for _ in range(20)]

        async with asyncio.timeout(2.0):
            assert (await get(server, "/health/live"))[0] == 200

        for _, writer in crowd:
            writer.close()


async def test_a_port_in_use_is_said_plainly() -> None:
    async with serving() as server:
        host, port = server.address
        second = HealthServer(well, host=host, port=port)

        with pytest.raises(ConfigError, match=f"{port}.*Choose another"):
            await second.start()


async def test_closing_hangs_up_and_frees_the_port() -> None:
    server = HealthServer(well, host="127.0.0.1", port=0)
    await server.start()
    address = server.address
    reader, writer = await asyncio.open_connection(*address)

    await server.close()

    assert await asyncio.wait_for(reader.read(), 5.0) == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)
