"""Silent and endless clients are disconnected."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from deadletter.server.listener import HttpServer, url_of
from deadletter.settings import Serve
from deadletter.testing.fakes import eventually
from server.serve.test_loops import listener, serving

pytestmark = pytest.mark.slow

__all__ = ["listener"]

LIVE = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
HALF = LIVE[:-2]
LOGIN = (
    b"POST /v1/queues.create HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/json\r\ncontent-length: 100000\r\n\r\n"
)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletter.server.listener.HEAD_WITHIN", 0.5)
    monkeypatch.setattr("deadletter.server.listener.BODY_WITHIN", 0.5)
    monkeypatch.setattr("deadletter.server.listener.TAKEN_WITHIN", 0.5)


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def hear(self) -> bytes:
        return await self._reader.read(65_536)

    async def until_closed(self) -> bytes:
        """Return the remaining output until the connection ends."""
        heard = b""
        async with asyncio.timeout(10):
            while part := await self.hear():
                heard += part
        return heard

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof()


@asynccontextmanager
async def client(listener: socket.socket) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def live(listener: socket.socket) -> int:
    async with httpx.AsyncClient(base_url=url_of(listener)) as there:
        return (await there.get("/health/live")).status_code


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize(
    "said", [b"", HALF, LOGIN, LOGIN + b"{"], ids=["nothing", "head", "body", "some"]
)
async def test_stalled_clients_are_disconnected(listener: socket.socket, said: bytes) -> None:
    async with serving(listener), client(listener) as slow:
        await slow.say(said)

        await slow.until_closed()


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("said", [HALF, b"\r\n"], ids=["head", "an empty line"])
async def test_nor_is_one_who_was_answered_before(listener: socket.socket, said: bytes) -> None:
    async with serving(listener), client(listener) as slow:
        await slow.say(LIVE)
        answer = await slow.hear()
        await slow.say(said)

        await slow.until_closed()

    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("hurry")
async def test_a_drop_now_and_then_does_not_help(listener: socket.socket) -> None:
    async with serving(listener), client(listener) as slow:

        async def dripping() -> None:
            await slow.say(HALF)
            while True:
                await slow.say(b"x-a: b\r\n")
                await asyncio.sleep(0.05)

        drops = asyncio.create_task(dripping())
        try:
            await slow.until_closed()
        except ConnectionError:
            pass  # it was still talking
        finally:
            drops.cancel()
            await asyncio.gather(drops, return_exceptions=True)


@pytest.mark.usefixtures("hurry")
async def test_a_body_that_comes_fast_enough_may_take_its_time(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(listener), client(listener) as steady:
        await steady.say(LOGIN)
        for _ in range(20):  # 2 seconds at five times the rate
            await steady.say(b"[" * 500)
            await asyncio.sleep(0.1)

        assert steady.is_open


@pytest.mark.usefixtures("hurry")
async def test_waiting_for_an_answer_is_no_fault(listener: socket.socket) -> None:
    queue: dict[str, Any] = {
        "queue_name": "orders",
        "lease_timeout": "1m",
        "expire_timeout": "10m",
        "requested_partitions": 1,
    }
    lease = {"queue_name": "orders", "client_id": "c", "batch_size": 1, "request_timeout": "3s"}
    async with serving(listener), httpx.AsyncClient(base_url=url_of(listener), timeout=30) as there:
        await there.post("/v1/queues.create", json=queue)

        answer = await there.post("/v1/queue.lease", json=lease)

    assert answer.status_code == 454


async def test_nor_is_waiting_for_leave_to_send(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for 100 Continue does not count as slow."""
    monkeypatch.setattr("deadletter.server.listener.BODY_WITHIN", 2.0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        await asyncio.sleep(3.0)
        await receive()
        headers = [(b"content-length", b"2"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    server = HttpServer(app, Serve())
    running = asyncio.create_task(server.serve([listener]))
    await eventually(lambda: server.started)
    async with client(listener) as polite:
        await polite.say(LOGIN.replace(b"100000", b"1\r\nexpect: 100-continue"))
        leave = await polite.hear()
        await polite.say(b"x")
        answer = await polite.until_closed()
    server.should_exit = True
    await running

    assert leave.startswith(b"HTTP/1.1 100")
    assert answer.endswith(b"ok")


async def test_headers_without_end_are_refused(listener: socket.socket) -> None:
    async with serving(listener), client(listener) as endless:
        await endless.say(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n")

        async def telling() -> None:
            while True:
                await endless.say(b"x-a: " + b"b" * 10_000 + b"\r\n")

        telling_on = asyncio.create_task(telling())
        try:
            heard = await endless.until_closed()
        except ConnectionError:
            heard = b"HTTP/1.1 431"  # it was still talking, and did not hear it
        finally:
            telling_on.cancel()
            await asyncio.gather(telling_on, return_exceptions=True)

    assert heard.startswith(b"HTTP/1.1 431")


@pytest.mark.usefixtures("hurry")
async def test_an_answer_that_is_not_fetched_is_given_up(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with serving(listener) as server:
            there = server._http.server_state.connections
            # Answers pile up: more than the two buffers of the system hold.
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            many = LIVE.replace(b"/health/live", b"/api/openapi.json") * 100
            await loop.sock_sendall(deaf, many)
            await eventually(lambda: len(there) == 1)

            await eventually(lambda: not there, within=10)


@pytest.mark.usefixtures("hurry")
@pytest.mark.slow
async def test_a_thousand_of_them_do_not_shut_others_out(listener: socket.socket) -> None:
    async with serving(listener) as server:
        slow = [socket.create_connection(listener.getsockname()) for _ in range(1_000)]
        for one in slow:
            one.sendall(HALF)
        there = server._http.server_state.connections
        await eventually(lambda: len(there) >= 1_000)

        status = await live(listener)
        await eventually(lambda: not there, within=10)
        for one in slow:
            one.close()

    assert status == 200
